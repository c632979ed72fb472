// Ranges for a profiler that is attached to the process, through NVTX: nothing is linked, and
// without a profiler nothing is called.
#pragma once

namespace ctxbroker::detail {

// Looks for a profiler, once per process; sets profiler_observes when there is one. [main] thread:
// it may load the profiler's library.
void attach_profiler() noexcept;

// A range of the calling thread named "verb subject"; ranges of a thread nest. Only when
// profiler_observes is set.
void push_profiler_range(const char* verb, const char* subject) noexcept;
void pop_profiler_range() noexcept;

}  // namespace ctxbroker::detail
