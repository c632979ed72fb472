// A clock for code that takes the time on every call. It costs about half of what the steady clock
// costs. Its unit depends on the machine; nanoseconds_of converts it when somebody reads a total.
#pragma once

#include <cstdint>

#include "observe/span.hpp"

namespace ctxbroker::detail {

#if defined(__x86_64__)
// True when the processor's counter runs at a constant rate.
extern const bool time_stamps_are_even;
#endif

// Returns the processor's counter, or the steady clock's nanoseconds when the counter's rate
// varies.
inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  if (time_stamps_are_even) return __builtin_ia32_rdtsc();
#endif
  return timeline_now();
}

// Returns the ticks between two readings. Never negative, although the counters of two cores may
// differ a little.
inline std::uint64_t ticks_between(std::uint64_t from, std::uint64_t to) noexcept {
  return to > from ? to - from : 0;
}

// Converts ticks. Too slow for a call on the hot path.
std::uint64_t nanoseconds_of(std::uint64_t ticks) noexcept;

}  // namespace ctxbroker::detail
