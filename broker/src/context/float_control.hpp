// SPDX-License-Identifier: Apache-2.0
// The control bits of a thread's floating-point arithmetic: rounding, precision, what happens to
// subnormal numbers, and which exceptions trap. Not the flags of exceptions that have happened.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxbroker::detail {

class FloatControl {
 public:
  struct OfThisThread {};

  FloatControl() noexcept = default;
  // Reads the calling thread's. This writes each part where it stays: to read parts of different
  // sizes from where they have just been written makes the processor wait.
  explicit FloatControl(OfThisThread) noexcept {
#if defined(__x86_64__)
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(vector_), "=m"(x87_));
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(vector_));
#endif
  }

  // Returns whether the calling thread has these bits.
  bool is_set() const noexcept {
    const FloatControl now{OfThisThread()};
    return ((now.vector_ ^ vector_) & ~vector_flags) == 0 && now.x87_ == x87_;
  }

  // Gives the calling thread these bits. Writes what was changed into `text`, for a strike.
  void restore(char* text, std::size_t bytes) const noexcept;

 private:
#if defined(__aarch64__)
  static constexpr std::uint64_t vector_flags = 0;
  std::uint64_t vector_ = 0;
#else
  static constexpr std::uint32_t vector_flags = 0x3f;
  std::uint32_t vector_ = 0;  // MXCSR, with the flags: to leave them in costs less
#endif
  std::uint16_t x87_ = 0;  // the control word
};

}  // namespace ctxbroker::detail
