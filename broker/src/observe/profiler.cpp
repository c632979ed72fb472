#include "observe/profiler.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
// NVTX finds the profiler's library through the environment variable NVTX_INJECTION64_PATH.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

// The domain of all our ranges. It is never destroyed, because threads make spans until the process
// ends.
nvtxDomainHandle_t domain() noexcept {
  static nvtxDomainHandle_t const made = nvtxDomainCreateA("ctxbroker");
  return made;
}

}  // namespace

void attach_profiler() noexcept {
  if (domain() != nullptr) observers.fetch_or(profiler_observes, std::memory_order_relaxed);
}

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

}  // namespace ctxbroker::detail

#else  // This toolkit has no NVTX headers, so the broker makes no ranges.

namespace ctxbroker::detail {

void attach_profiler() noexcept {}
void push_profiler_range(const char*, const char*) noexcept {}
void pop_profiler_range() noexcept {}

}  // namespace ctxbroker::detail

#endif
