// SPDX-License-Identifier: Apache-2.0
#include "ledger/holding.hpp"

#include <array>
#include <utility>

namespace ctxbroker::detail {
namespace {

struct About {
  const char* name;
  bool waits = false;
  Limit limit = Limit::none;
};
constexpr std::array<About, kind_count> about{{{"memory of a graph", true},
                                               {"executable graph", false, Limit::graphs},
                                               {"graph", false, Limit::graphs},
                                               {"user object"},
                                               {"event", false, Limit::events},
                                               {"stream", false, Limit::streams},
                                               {"linker's state"},
                                               {"texture object"},
                                               {"surface object"},
                                               {"library", true, Limit::modules},
                                               {"module", true, Limit::modules},
                                               {"array", true},
                                               {"mipmapped array", true},
                                               {"device memory", true},
                                               {"pinned host memory", true},
                                               {"host registration", true},
                                               {"memory of another process", true},
                                               {"memory of another API", true},
                                               {"semaphore of another API"},
                                               {"graphics resource", true},
                                               {"memory mapping", true},
                                               {"address reservation"},
                                               {"physical memory"},
                                               {"memory pool"},
                                               {"memory pool for the default one"},
                                               {"peer access"},
                                               {"green context", true, Limit::contexts},
                                               {"context", true, Limit::contexts}}};

}  // namespace

const char* to_string(Kind kind) noexcept {
  return about[static_cast<std::size_t>(kind)].name;
}

bool waits_for_work(Kind kind) noexcept {
  return about[static_cast<std::size_t>(kind)].waits;
}

Limit limit_of(Kind kind) noexcept {
  return about[static_cast<std::size_t>(kind)].limit;
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

namespace {

void add_to_count(const Holding& holding, std::int64_t change) noexcept {
  LeaseCounters& lease = holding.lease->counters();
  (holding.kind == Kind::stream ? lease.streams : lease.allocations)
      .fetch_add(change, std::memory_order_relaxed);
}

}  // namespace

Ending ending_of(const Holding& holding, std::function<CUresult()> call,
                 std::function<void(CUresult)> after) {
  return {.home = home_of(holding),
          .what = to_string(holding.kind),
          .bytes = holding.bytes,
          .may_wait = waits_for_work(holding.kind),
          .call = std::move(call),
          .after = std::move(after),
          .is_stored = holding.store != nullptr};
}

void count(const Holding& holding) noexcept {
  if (holding.lease == nullptr) return;
  add_to_count(holding, 1);
  holding.lease->counters().memory.take(holding.bytes);
  holding.lease->counters().memory.raise_peak();
}

void stop_counting(const Holding& holding) noexcept {
  if (holding.budget != nullptr) holding.budget->give(holding.bytes);
  if (holding.counted_in != nullptr) holding.counted_in->give(holding.amount);
  if (holding.lease == nullptr) return;
  add_to_count(holding, -1);
  holding.lease->counters().memory.give(holding.bytes);
}

}  // namespace ctxbroker::detail
