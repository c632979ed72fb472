// SPDX-License-Identifier: Apache-2.0
#include "observe/span.hpp"

#include <chrono>
#include <cstring>

// NVTX is headers only, so the broker links nothing and calls nothing when there is no profiler. It
// finds the profiler's library through the environment variable NVTX_INJECTION64_PATH.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#endif

namespace ctxbroker::detail {
namespace {

#if __has_include(<nvtx3/nvToolsExt.h>)
// The domain of all our ranges. It is never destroyed, because threads make spans until the process
// ends.
nvtxDomainHandle_t domain() noexcept {
  static nvtxDomainHandle_t const made = nvtxDomainCreateA("ctxbroker");
  return made;
}

bool is_profiler_there() noexcept {
  return domain() != nullptr;
}

// Begins a range of the calling thread. Ranges of one thread nest.
void push_profiler_range(const char* verb, const char* subject) noexcept {
  char text[160];
  std::snprintf(text, sizeof text, "%s%s%s", verb, subject == nullptr ? "" : " ",
                subject == nullptr ? "" : subject);
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = text;  // the profiler copies it
  nvtxDomainRangePushEx(domain(), &range);
}

void pop_profiler_range() noexcept {
  nvtxDomainRangePop(domain());
}
#else  // This toolkit has no NVTX headers, so the broker makes no ranges.
bool is_profiler_there() noexcept {
  return false;
}
void push_profiler_range(const char*, const char*) noexcept {}
void pop_profiler_range() noexcept {}
#endif

// Where a text of `length` bytes can be cut to at most `most` without splitting a character.
std::size_t cut_at(const char* text, std::size_t most) noexcept {
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return most;
}

}  // namespace

void attach_profiler() noexcept {
  if (is_profiler_there()) observers.fetch_or(profiler_observes, std::memory_order_relaxed);
}

std::uint64_t timeline_now() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

void set_subject(Span& span, const char* text) noexcept {
  if (text == nullptr) return;
  constexpr char ellipsis[] = "\u2026";
  constexpr std::size_t room = sizeof span.subject - 1;
  const std::size_t length = strnlen(text, room + 1);
  if (length <= room) {
    std::memcpy(span.subject, text, length);
    return;
  }
  const std::size_t kept = cut_at(text, room - (sizeof ellipsis - 1));
  std::memcpy(span.subject, text, kept);
  std::memcpy(span.subject + kept, ellipsis, sizeof ellipsis - 1);
}

void ScopedSpan::begin(SpanCategory category, const char* verb, const char* subject,
                       TenantId tenant, std::uint64_t first, std::uint64_t second) noexcept {
  const unsigned int seen_by = observers.load(std::memory_order_relaxed);
  in_profiler_ = (seen_by & profiler_observes) != 0 &&
                 (category == SpanCategory::job || category == SpanCategory::call);
  if (in_profiler_) push_profiler_range(verb, subject);
  if ((seen_by & timeline_observes) == 0) return;
  Span& span = span_.emplace();
  span.verb = verb;
  span.values[0] = first;
  span.values[1] = second;
  span.tenant = tenant.value;
  span.category = category;
  set_subject(span, subject);
  span.begin = timeline_now();
}

void ScopedSpan::end() noexcept {
  if (span_) {
    span_->end = timeline_now();
    record_span(*span_);
  }
  if (in_profiler_) pop_profiler_range();
}

void mark_instant(SpanCategory category, const char* verb, const char* subject,
                  TenantId tenant) noexcept {
  if (!timeline_observed()) return;
  Span span;
  span.begin = span.end = timeline_now();
  span.verb = verb;
  span.tenant = tenant.value;
  span.category = category;
  set_subject(span, subject);
  record_span(span);
}

}  // namespace ctxbroker::detail
