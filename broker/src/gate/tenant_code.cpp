// SPDX-License-Identifier: Apache-2.0
#include "gate/tenant_code.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace ctxbroker::detail {
namespace {

// It is never freed, because nobody knows who still reads it. That costs a few bytes per library
// that comes or goes.
struct TenantCode {
  bool is_changing = false;
  std::vector<Extent> ranges;
};
std::atomic<const TenantCode*> tenant_code{nullptr};

}  // namespace

void publish_tenant_code(std::vector<Extent> ranges, bool is_changing) {
  static auto* const kept = new std::vector<std::unique_ptr<const TenantCode>>;
  kept->push_back(std::make_unique<TenantCode>(TenantCode{is_changing, std::move(ranges)}));
  tenant_code.store(kept->back().get(), std::memory_order_release);
}

const void* owners_of_code() noexcept {
  return tenant_code.load(std::memory_order_acquire);
}

// Reads a stack as it lies there. Sanitizers must not watch that.
__attribute__((no_sanitize("address", "thread"))) bool may_point_into_tenants(
    const std::uintptr_t* first, const std::uintptr_t* end) noexcept {
  const TenantCode* const code = tenant_code.load(std::memory_order_acquire);
  if (code == nullptr) return false;
  if (code->is_changing) return true;
  if (code->ranges.empty()) return false;
  const Extent* const ranges = code->ranges.data();
  const std::size_t count = code->ranges.size();
  const std::uintptr_t lowest = ranges[0].begin, highest = ranges[count - 1].end;
  for (const std::uintptr_t* word = first; word < end; ++word) {
    if (*word < lowest || *word > highest) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (*word >= ranges[i].begin && *word <= ranges[i].end) return true;
    }
  }
  return false;
}

}  // namespace ctxbroker::detail
