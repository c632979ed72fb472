// Marks what a thread does, from here to the end of a scope, for the timeline and for a profiler.
// When nobody looks it costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>

#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// In the order of the table in span_category.cpp.
enum class SpanCategory : std::uint8_t {
  guard,   // the thread is in a lease's context
  job,     // one job of a chain
  call,    // a function of a plug-in runs
  launch,  // a kernel is enqueued
  copy,    // a copy or a clear is enqueued
  wait,    // the host waits for the device
  load,    // a library or a module is loaded
  lease,   // a context is made or ended
  strike,  // an instant: a breach of the plug-in contract
  device,  // on the device: a plug-in's part of one job
};

// One finished span. The subject is copied, so that it may outlive what it names.
struct Span {
  std::uint64_t begin = 0, end = 0;  // ns, timeline_now()
  const char* verb = "";             // static text
  std::uint64_t values[2] = {0, 0};  // what they mean is in the category's row
  std::uint32_t tenant = 0;
  std::int32_t status = 0;  // of the driver; 0: all went well
  SpanCategory category = SpanCategory::guard;
  char subject[79] = {};  // ends with 0; cut where it is longer, which its last bytes show
};
static_assert(sizeof(Span) == 128, "two cache lines");

// Copies a text into the span's subject; null counts as empty.
void set_subject(Span& span, const char* text) noexcept;

// Any thread. Waits for nobody: no lock, no allocation, no page not yet touched. Dropped and
// counted when there is no room; ignored when nothing records or it began before the recording.
void record_span(const Span& span) noexcept;

// Who looks, as a set of bits. Global because a span is made by code that knows nothing of any
// broker: guards, on any thread.
inline constexpr unsigned int timeline_observes = 1, profiler_observes = 2;
inline constinit std::atomic<unsigned int> observers{0};

inline bool observed() noexcept {
  return observers.load(std::memory_order_relaxed) != 0;
}

inline bool timeline_observed() noexcept {
  return (observers.load(std::memory_order_relaxed) & timeline_observes) != 0;
}

// ns of a clock that never jumps; its zero means nothing.
std::uint64_t timeline_now() noexcept;

// Any thread. Takes no lock, allocates nothing, throws nothing.
class ScopedSpan {
 public:
  // `verb` is static text: "launch". `subject` is borrowed until the end of the scope, and may be
  // null: the kernel's name.
  ScopedSpan(SpanCategory category, const char* verb, const char* subject, TenantId tenant,
             std::uint64_t first = 0, std::uint64_t second = 0) noexcept {
    if (observed()) begin(category, verb, subject, tenant, first, second);
  }
  ~ScopedSpan() {
    if (seen_by_ != 0) end();
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

  // How the driver answered.
  void set_status(int status) noexcept { status_ = status; }

 private:
  void begin(SpanCategory category, const char* verb, const char* subject, TenantId tenant,
             std::uint64_t first, std::uint64_t second) noexcept;
  void end() noexcept;

  unsigned int seen_by_ = 0;
  int status_ = 0;
  // Filled by begin only.
  std::uint64_t begin_, values_[2];
  const char* verb_;
  const char* subject_;
  TenantId tenant_;
  SpanCategory category_;
};

// A span without a length, now.
void mark_instant(SpanCategory category, const char* verb, const char* subject,
                  TenantId tenant) noexcept;

}  // namespace ctxbroker::detail
