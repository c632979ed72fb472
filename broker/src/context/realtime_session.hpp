// SPDX-License-Identifier: Apache-2.0
// Real-time sessions, in which calls that hold up a tenant's neighbours are counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "context/realtime_calls.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

struct TenantIdentity;

// Counts a call. Writes a record with the tenant's news at most once a second.
void note_realtime_call(const TenantIdentity& tenant, std::size_t call,
                        std::uint64_t nanoseconds) noexcept;

// Writes a record with the tenant's news, if there are any: see RealtimeCalls::news.
void tell_realtime_calls(const TenantIdentity& tenant, bool at_once) noexcept;

// The sessions of one broker. They nest. Any thread.
//
// While any broker of the process has a session open, no broker unloads a module or destroys a
// context on its own, and the calls that hold up neighbours are counted. Sessions affect all
// brokers because the tenants of all brokers share the devices.
class RealtimeSession {
 public:
  RealtimeSession() = default;
  ~RealtimeSession() { end_all(); }
  RealtimeSession(const RealtimeSession&) = delete;
  RealtimeSession& operator=(const RealtimeSession&) = delete;

  void begin() noexcept;
  bool end() noexcept;  // false: none is open
  void end_all() noexcept;
  bool is_open() const noexcept { return open_.load(std::memory_order_acquire) != 0; }
  static bool anywhere() noexcept { return open_anywhere.load(std::memory_order_acquire) != 0; }

 private:
  static inline constinit std::atomic<int> open_anywhere{0};
  std::atomic<int> open_{0};
};

// Counts and times a call that holds up the tenant's neighbours, from here to the end of the scope.
// Outside sessions it costs one load. If one such call makes another, both are counted.
class RealtimeWork {
 public:
  // `tenant` outlives the scope. `kind` is the kind of the lease for which the work is done.
  RealtimeWork(const TenantIdentity& tenant, std::size_t call,
               LeaseKind kind = LeaseKind::shared) noexcept {
    if (RealtimeSession::anywhere() && holds_up(call, kind)) begin(tenant, call);
  }
  ~RealtimeWork() {
    if (tenant_ != nullptr) end();
  }
  RealtimeWork(const RealtimeWork&) = delete;
  RealtimeWork& operator=(const RealtimeWork&) = delete;

 private:
  void begin(const TenantIdentity& tenant, std::size_t call) noexcept;
  void end() noexcept;

  const TenantIdentity* tenant_ = nullptr;  // null: it is not counted
  std::size_t call_ = 0;
  std::uint64_t from_ = 0;  // ns
  bool was_hosts_call_ = false;
  std::optional<ScopedSpan> span_;
};

}  // namespace ctxbroker::detail
