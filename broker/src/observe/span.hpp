// SPDX-License-Identifier: Apache-2.0
// Records what a thread does in a scope, for the timeline and for a profiler. Costs one relaxed
// load when nothing records.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// In the order of the table in trace_file.cpp.
enum class SpanCategory : std::uint8_t {
  guard,     // the thread is in a lease's context
  job,       // one job of a graph
  call,      // a function of a plug-in runs
  launch,    // a kernel is enqueued
  copy,      // a copy or a clear is enqueued
  wait,      // the host waits for the device
  load,      // a library or a module is loaded
  lease,     // a context is made or ended
  strike,    // an instant: a breach of the plug-in contract
  device,    // on the device: a plug-in's part of one job
  realtime,  // a tenant's call holds up its neighbours, in a real-time session
};

// One finished span. The subject is copied, so that it may outlive what it names.
struct Span {
  std::uint64_t begin = 0, end = 0;  // ns, timeline_now()
  const char* verb = "";             // static text
  std::uint64_t values[2] = {0, 0};  // their names are in the table in trace_file.cpp
  std::uint32_t tenant = 0;
  std::int32_t status = 0;  // the driver's status; 0 means success
  SpanCategory category = SpanCategory::guard;
  char subject[79] = {};  // ends with 0; a longer text is cut and ends with an ellipsis
};
static_assert(sizeof(Span) == 128, "two cache lines");

// Copies a text into the span's subject. Null means empty.
void set_subject(Span& span, const char* text) noexcept;

// Any thread. Records a span without a lock, an allocation or a page fault. A span that finds no
// room is dropped and counted; one that began before the recording is ignored.
void record_span(const Span& span) noexcept;

// The active observers, as a set of bits. Global because guards, which make spans on any thread, do
// not know a broker.
inline constexpr unsigned int timeline_observes = 1, profiler_observes = 2;
inline constinit std::atomic<unsigned int> observers{0};

inline bool observed() noexcept {
  return observers.load(std::memory_order_relaxed) != 0;
}

inline bool timeline_observed() noexcept {
  return (observers.load(std::memory_order_relaxed) & timeline_observes) != 0;
}

// Looks for a profiler (NVTX) and sets profiler_observes when one is attached. Called once per
// process on the [main] thread, because this may load the profiler's library.
void attach_profiler() noexcept;

// Returns nanoseconds of a steady clock with an arbitrary zero.
std::uint64_t timeline_now() noexcept;

// Any thread. Does not lock, allocate or throw.
class ScopedSpan {
 public:
  // `verb` is static text such as "launch". `subject`, for example the kernel's name, may be null.
  ScopedSpan(SpanCategory category, const char* verb, const char* subject, TenantId tenant,
             std::uint64_t first = 0, std::uint64_t second = 0) noexcept {
    if (observed()) begin(category, verb, subject, tenant, first, second);
  }
  ~ScopedSpan() {
    if (span_ || in_profiler_) end();
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

  // Sets the driver's status of the work in this scope.
  void set_status(int status) noexcept {
    if (span_) span_->status = status;
  }

 private:
  void begin(SpanCategory category, const char* verb, const char* subject, TenantId tenant,
             std::uint64_t first, std::uint64_t second) noexcept;
  void end() noexcept;

  std::optional<Span> span_;  // while a timeline is recorded
  bool in_profiler_ = false;  // a range of the profiler is open
};

// Records an instant: a span without a length.
void mark_instant(SpanCategory category, const char* verb, const char* subject,
                  TenantId tenant) noexcept;

}  // namespace ctxbroker::detail
