#include "observe/ticks.hpp"

#include <atomic>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ctxbroker::detail {

#if defined(__x86_64__)
namespace {

bool says_invariant() noexcept {
  constexpr unsigned int power_management = 0x80000007, invariant = 1U << 8;
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(power_management, &a, &b, &c, &d) != 0 && (d & invariant) != 0;
}

}  // namespace

const bool time_stamps_are_even = says_invariant();
#endif

namespace {

// Both clocks at one moment.
struct Moment {
  std::uint64_t ticks = 0, nanoseconds = 0;

  static Moment now() noexcept {
    constexpr int most_tries = 20;
    constexpr std::uint64_t undisturbed = 1000;  // ns
    Moment best;
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < most_tries && least > undisturbed; ++i) {
      const std::uint64_t before = timeline_now();
      const std::uint64_t ticks = ticks_now();
      const std::uint64_t took = timeline_now() - before;
      if (took >= least) continue;
      least = took;
      best = {ticks, before + took / 2};
    }
    return best;
  }
};

const Moment beginning = Moment::now();
std::atomic<double> known_length{0};  // of a tick, in ns; 0: not measured yet

double length_of_tick() noexcept {
  if (const double known = known_length.load(std::memory_order_relaxed); known != 0) return known;
  const Moment now = Moment::now();
  if (now.ticks <= beginning.ticks) return 1;
  const std::uint64_t passed = now.nanoseconds - beginning.nanoseconds;
  const double length =
      static_cast<double>(passed) / static_cast<double>(now.ticks - beginning.ticks);
  constexpr std::uint64_t long_enough = 10'000'000;  // ns: right to one in ten thousand
  if (passed >= long_enough) known_length.store(length, std::memory_order_relaxed);
  return length;
}

}  // namespace

std::uint64_t nanoseconds_of(std::uint64_t ticks) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(ticks) * length_of_tick());
}

}  // namespace ctxbroker::detail
