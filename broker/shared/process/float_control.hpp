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

  // The control that a program's first thread starts with.
  static FloatControl usual() noexcept {
    FloatControl control;
#if defined(__x86_64__)
    control.vector_ = 0x1f80;
    control.x87_ = 0x037f;
#endif
    return control;
  }

  // Gives the calling thread these bits.
  void set() const noexcept {
#if defined(__x86_64__)
    std::uint32_t vector = 0;
    asm volatile("stmxcsr %0" : "=m"(vector));
    vector = (vector & vector_flags) | (vector_ & ~vector_flags);
    asm volatile("ldmxcsr %0" : : "m"(vector));
    // A flag that is set would trap as soon as its exception is let through.
    std::uint16_t status = 0;
    asm volatile("fnstsw %0" : "=m"(status));
    if ((status & ~x87_ & 0x3f) != 0) asm volatile("fnclex");
    asm volatile("fldcw %0" : : "m"(x87_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(vector_));
#endif
  }
  // The same. Writes what was changed into `text`, for a strike.
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

// The calling thread has these bits until the end of the scope. Costs a comparison if it has them
// already.
class WithFloatControl {
 public:
  explicit WithFloatControl(const FloatControl& control) noexcept : changes_(!control.is_set()) {
    if (!changes_) return;
    before_ = FloatControl(FloatControl::OfThisThread());
    control.set();
  }
  ~WithFloatControl() {
    if (changes_) before_.set();
  }
  WithFloatControl(const WithFloatControl&) = delete;
  WithFloatControl& operator=(const WithFloatControl&) = delete;

 private:
  const bool changes_;
  FloatControl before_;
};

}  // namespace ctxbroker::detail
