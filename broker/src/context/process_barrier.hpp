// A memory barrier on every thread of the process at once, so that a hot path needs none.
#pragma once

namespace ctxbroker::detail {

// What other threads had written before is seen after it, and what was written before it is seen by
// what they read later, if only their compiler keeps the order. Some microseconds. False: the
// system has no such thing, and nothing was done. Any thread.
bool barrier_on_all_threads() noexcept;

}  // namespace ctxbroker::detail
