// A clock for what is timed at every call: about half of what the steady clock costs. Its unit is
// the machine's own, and is turned into nanoseconds where somebody reads it.
#pragma once

#include <cstdint>

#include "observe/span.hpp"

namespace ctxbroker::detail {

#if defined(__x86_64__)
// The processor's counter runs at one rate, whatever the core does.
extern const bool time_stamps_are_even;
#endif

// Where the processor has no such counter, the steady clock's nanoseconds.
inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  if (time_stamps_are_even) return __builtin_ia32_rdtsc();
#endif
  return timeline_now();
}

// From one reading to another. No less than 0, though the cores' counters may differ a little.
inline std::uint64_t ticks_between(std::uint64_t from, std::uint64_t to) noexcept {
  return to > from ? to - from : 0;
}

// Not for every call.
std::uint64_t nanoseconds_of(std::uint64_t ticks) noexcept;

}  // namespace ctxbroker::detail
