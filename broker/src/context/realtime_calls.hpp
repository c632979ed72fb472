// SPDX-License-Identifier: Apache-2.0
// The calls that hold up the neighbours of the tenant that makes them, and the counters of these
// calls in real-time sessions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

// The work that a call holds up.
enum class HeldUp : std::uint8_t {
  everybodys,    // all work on the device, or all work of the process
  with_memory,   // the work of leases that share the caller's memory: shared and green ones
  with_context,  // the work of leases that share the caller's context: shared ones
};

// The treatment of a call in a session.
enum class RealtimeAnswer : std::uint8_t {
  host_call,  // a call of the host or of the broker: it is counted
  count,      // a call of a tenant's code, which cannot handle a refusal: it is counted
  refuse,     // a call of a tenant's code: it is counted, or refused if a policy says so
};

struct RealtimeCall {
  const char* name;  // for a function of the driver: its name without a version
  HeldUp held_up;
  RealtimeAnswer answer;
};

// The calls that hold up neighbours. Calls that free or destroy something wait for the neighbours'
// kernels, and hold up work that is launched behind them.
inline constexpr RealtimeCall realtime_calls[] = {
    {"create", HeldUp::everybodys, RealtimeAnswer::host_call},
    {"activate", HeldUp::everybodys, RealtimeAnswer::host_call},
    {"deactivate", HeldUp::everybodys, RealtimeAnswer::host_call},
    {"make lease", HeldUp::everybodys, RealtimeAnswer::host_call},
    {"end lease", HeldUp::everybodys, RealtimeAnswer::host_call},
    {"allocate", HeldUp::with_memory, RealtimeAnswer::host_call},
    {"release", HeldUp::with_memory, RealtimeAnswer::host_call},
    {"load module", HeldUp::with_memory, RealtimeAnswer::host_call},
    {"unload module", HeldUp::with_memory, RealtimeAnswer::host_call},

    {"cuCtxCreate", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuGLCtxCreate", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuVDPAUCtxCreate", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuGreenCtxCreate", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuCtxDestroy", HeldUp::everybodys, RealtimeAnswer::count},
    {"cuCtxDetach", HeldUp::everybodys, RealtimeAnswer::count},

    {"cuMemAllocHost", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuMemHostAlloc", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuMemHostRegister", HeldUp::everybodys, RealtimeAnswer::refuse},
    {"cuMemFreeHost", HeldUp::everybodys, RealtimeAnswer::count},
    {"cuMemHostUnregister", HeldUp::everybodys, RealtimeAnswer::count},

    {"cuMemAlloc", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuMemAllocPitch", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuMemAllocManaged", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuMemCreate", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuArrayCreate", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuArray3DCreate", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuMipmappedArrayCreate", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuMemFree", HeldUp::with_memory, RealtimeAnswer::count},
    {"cuMemRelease", HeldUp::with_memory, RealtimeAnswer::count},
    {"cuArrayDestroy", HeldUp::with_memory, RealtimeAnswer::count},
    {"cuMipmappedArrayDestroy", HeldUp::with_memory, RealtimeAnswer::count},

    {"cuModuleLoad", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuModuleLoadData", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuModuleLoadDataEx", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuModuleLoadFatBinary", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuLibraryLoadData", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuLibraryLoadFromFile", HeldUp::with_memory, RealtimeAnswer::refuse},
    {"cuModuleUnload", HeldUp::with_memory, RealtimeAnswer::count},
    {"cuLibraryUnload", HeldUp::with_memory, RealtimeAnswer::count},

    {"cuCtxSynchronize", HeldUp::with_context, RealtimeAnswer::refuse},
};
inline constexpr std::size_t realtime_call_count = std::size(realtime_calls);

// Returns the call's place in the table. `symbol` may have a version behind it: "cuMemAlloc_v2".
constexpr std::optional<std::size_t> find_realtime_call(std::string_view symbol) noexcept {
  const std::string_view name = symbol.substr(0, symbol.rfind("_v"));
  for (std::size_t index = 0; index < realtime_call_count; ++index) {
    if (realtime_calls[index].name == name) return index;
  }
  return std::nullopt;
}
// The same for a name that is in the table.
consteval std::size_t realtime_call(std::string_view name) {
  return find_realtime_call(name).value();
}

// Returns whether a call from a lease of that kind holds up neighbours.
constexpr bool holds_up(std::size_t call, LeaseKind kind) noexcept {
  switch (realtime_calls[call].held_up) {
    case HeldUp::with_memory:
      return kind != LeaseKind::private_own;
    case HeldUp::with_context:
      return kind == LeaseKind::shared;
    default:
      return true;
  }
}

// The number of calls of one name in sessions, and their time.
struct RealtimeFigures {
  std::uint64_t count = 0;        // without those that were refused
  std::uint64_t nanoseconds = 0;  // all together
  std::uint64_t longest = 0;      // ns
  std::uint64_t refused = 0;
};

// The calls of one tenant. Any thread.
class RealtimeCalls {
 public:
  RealtimeCalls() = default;
  ~RealtimeCalls();
  RealtimeCalls(const RealtimeCalls&) = delete;
  RealtimeCalls& operator=(const RealtimeCalls&) = delete;

  // `call` is a place in the table. Takes no lock, and allocates only at the tenant's first call.
  void count(std::size_t call, std::uint64_t nanoseconds) noexcept;
  void count_refused(std::size_t call) noexcept;
  RealtimeFigures figures(std::size_t call) const noexcept;

  // Sets whether the policy refuses calls of the tenant's code.
  void set_refuses(bool refuses) noexcept { refuses_.store(refuses, std::memory_order_relaxed); }
  bool refuses() const noexcept { return refuses_.load(std::memory_order_relaxed); }

  // The calls since the last text, as a line.
  struct News {
    std::string text;
    bool any_refused = false;
  };
  // Returns the news. The text is empty if there are no new calls, or if another thread makes a
  // text now. Unless `at_once`, it is also empty within a second of the last text.
  News news(bool at_once);
  // Returns whether the last text is at least a second old. Takes no lock.
  bool is_news_due() const noexcept;

 private:
  // Most tenants make none of these calls in a session, and have no figures.
  struct Table;
  Table* table() noexcept;  // null: there is not enough host memory

  std::atomic<Table*> table_{nullptr};
  std::atomic<bool> refuses_{false};
  std::atomic<std::uint64_t> next_news_{0};  // ns, timeline_now()
};

}  // namespace ctxbroker::detail
