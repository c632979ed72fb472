#include "gate/holding.hpp"

#include <array>

namespace ctxbroker::detail {
namespace {

constexpr std::array<const char*, kind_count> names{"memory of a graph",
                                                    "executable graph",
                                                    "graph",
                                                    "event",
                                                    "stream",
                                                    "library",
                                                    "module",
                                                    "array",
                                                    "mipmapped array",
                                                    "device memory",
                                                    "pinned host memory",
                                                    "host registration",
                                                    "memory of another process",
                                                    "memory mapping",
                                                    "address reservation",
                                                    "physical memory",
                                                    "memory pool",
                                                    "memory pool for the default one",
                                                    "peer access",
                                                    "green context",
                                                    "context"};

}  // namespace

const char* to_string(Kind kind) noexcept {
  return names[static_cast<std::size_t>(kind)];
}

Home home_of(const Holding& holding) noexcept {
  switch (holding.kind) {
    case Kind::stream:
      return Home::context;
    case Kind::graph_memory:
    case Kind::mapping:
    case Kind::reservation:
    case Kind::physical:
    case Kind::pool:
    case Kind::own_pool:
      return Home::device;
    default:
      return holding.pooled ? Home::device : Home::memory;
  }
}

}  // namespace ctxbroker::detail
