// SPDX-License-Identifier: Apache-2.0
#include "gate/tenant_code.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <memory>

namespace ctxbroker::detail {
namespace {

struct Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<GatedTenant*> tenant{nullptr};
  std::atomic<const char*> path{""};
};

// Room for libraries. It is never freed, because nobody knows who still reads it. The next one has
// at least twice the room, so all of them together are smaller than twice the largest.
struct Room {
  explicit Room(std::size_t most) : ranges(most) {}
  std::vector<Range> ranges;
  std::atomic<std::size_t> count{0};  // in use
  std::unique_ptr<const Room> before;
};

// The writer makes this number odd, writes, and makes it even again. A reader that has read
// anything new reads another number afterwards, because what is written is stored with release and
// read with acquire. There are no fences, because ThreadSanitizer does not know them.
std::atomic<std::uint64_t> code_changes{0};
std::atomic<Room*> current_room{nullptr};  // null: there never was a range
std::atomic<bool> code_is_changing{false};

constexpr std::size_t least_room = 16;

// Reads a stack as it lies there. Sanitizers must not watch that.
__attribute__((no_sanitize("address", "thread"))) bool any_in(const Range* ranges,
                                                              std::size_t count,
                                                              const std::uintptr_t* first,
                                                              const std::uintptr_t* end) noexcept {
  constexpr auto acquire = std::memory_order_acquire;
  const std::uintptr_t lowest = ranges[0].begin.load(acquire);
  const std::uintptr_t highest = ranges[count - 1].end.load(acquire);
  for (const std::uintptr_t* word = first; word < end; ++word) {
    if (*word < lowest || *word > highest) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (*word >= ranges[i].begin.load(acquire) && *word <= ranges[i].end.load(acquire)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void publish_tenant_code(const std::vector<TenantCode>& libraries, bool is_changing) {
  Room* const used = current_room.load(std::memory_order_relaxed);
  const std::size_t most = used != nullptr ? used->ranges.size() : 0;
  std::unique_ptr<Room> larger;
  if (libraries.size() > most) {
    larger = std::make_unique<Room>(std::max({libraries.size(), 2 * most, least_room}));
  }
  const std::uint64_t odd = code_changes.load(std::memory_order_relaxed) + 1;
  code_changes.store(odd, std::memory_order_relaxed);  // the releases below keep it before them
  Room* const next = larger ? larger.get() : used;
  if (larger) {
    larger->before.reset(used);
    current_room.store(larger.release(), std::memory_order_release);
  }
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    Range& range = next->ranges[i];
    range.begin.store(libraries[i].code.begin, std::memory_order_release);
    range.end.store(libraries[i].code.end, std::memory_order_release);
    range.tenant.store(libraries[i].tenant, std::memory_order_release);
    range.path.store(libraries[i].path, std::memory_order_release);
  }
  if (next != nullptr) next->count.store(libraries.size(), std::memory_order_release);
  code_is_changing.store(is_changing, std::memory_order_release);
  code_changes.store(odd + 1, std::memory_order_release);
}

std::uint64_t owners_of_code() noexcept {
  return code_changes.load(std::memory_order_acquire);
}

TenantCode tenant_code_at(const void* address) noexcept {
  constexpr auto acquire = std::memory_order_acquire;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t before = code_changes.load(acquire);
  const Room* const read = current_room.load(acquire);
  if (before % 2 != 0 || read == nullptr) return {};
  const auto begin = read->ranges.begin();
  const auto after =
      std::upper_bound(begin, begin + static_cast<std::ptrdiff_t>(read->count.load(acquire)), at,
                       [](std::uintptr_t wanted, const Range& range) {
                         return wanted < range.begin.load(std::memory_order_acquire);
                       });
  if (after == begin) return {};
  const Range& range = *std::prev(after);
  const TenantCode found{{range.begin.load(acquire), range.end.load(acquire)},
                         range.tenant.load(acquire),
                         range.path.load(acquire)};
  const bool is_whole = code_changes.load(acquire) == before;
  return is_whole && is_in(found.code, at) ? found : TenantCode{};
}

bool may_point_into_tenants(const std::uintptr_t* first, const std::uintptr_t* end) noexcept {
  const std::uint64_t before = code_changes.load(std::memory_order_acquire);
  if (before % 2 != 0 || code_is_changing.load(std::memory_order_acquire)) return true;
  const Room* const read = current_room.load(std::memory_order_acquire);
  const std::size_t count = read != nullptr ? read->count.load(std::memory_order_acquire) : 0;
  if (count != 0 && any_in(read->ranges.data(), count, first, end)) return true;
  return code_changes.load(std::memory_order_acquire) != before;
}

}  // namespace ctxbroker::detail
