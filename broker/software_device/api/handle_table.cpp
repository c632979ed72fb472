// SPDX-License-Identifier: Apache-2.0
#include "api/handle_table.hpp"

#include <atomic>

namespace ctxbroker::software {
namespace {

// Trivially destructible: it is used while static objects are destroyed.
constinit std::atomic<std::uint64_t> last_id = 0;

}  // namespace

std::uint64_t next_id() noexcept {
  return ++last_id;
}

}  // namespace ctxbroker::software
