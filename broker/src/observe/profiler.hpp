// Shows ranges in a profiler that is attached to the process, through NVTX. NVTX is headers only,
// so the broker links nothing and calls nothing when there is no profiler.
#pragma once

namespace ctxbroker::detail {

// Looks for a profiler and sets profiler_observes when one is attached. Called once per process on
// the [main] thread, because this may load the profiler's library.
void attach_profiler() noexcept;

// Begin and end a range of the calling thread, named "verb subject". Ranges of one thread nest.
// Call these only when profiler_observes is set.
void push_profiler_range(const char* verb, const char* subject) noexcept;
void pop_profiler_range() noexcept;

}  // namespace ctxbroker::detail
