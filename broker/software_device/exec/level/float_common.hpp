// SPDX-License-Identifier: Apache-2.0
// Building blocks of the floating-point operations.
#pragma once

#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {

CTXB_OP u32 float_bits(f32 a) {
  return bits<u32>(a);
}
CTXB_OP u64 float_bits(f64 a) {
  return bits<u64>(a);
}

template <class T>
struct FloatTypes;
template <>
struct FloatTypes<f32> {
  using Bits = u32;
  static constexpr Bits sign = 0x80000000U, exponent = 0x7f800000U, nan = 0x7fffffffU;
};
template <>
struct FloatTypes<f64> {
  using Bits = u64;
  static constexpr Bits sign = 1ULL << 63, exponent = 0x7ffULL << 52, nan = 0x7ff8ULL << 48;
};
template <class T>
using Bits = typename FloatTypes<T>::Bits;

template <class T>
CTXB_OP T absolute(T a) {
  return bits<T>(static_cast<Bits<T>>(float_bits(a) & ~FloatTypes<T>::sign));
}
template <class T>
CTXB_OP T with_sign_of(T magnitude, T sign) {
  return bits<T>(static_cast<Bits<T>>((float_bits(magnitude) & ~FloatTypes<T>::sign) |
                                      (float_bits(sign) & FloatTypes<T>::sign)));
}
// .ftz: subnormal numbers become zero of the same sign.
CTXB_OP f32 flush(f32 a) {
  const u32 b = float_bits(a);
  return bits<f32>((b & 0x7f800000U) == 0 ? b & 0x80000000U : b);
}
CTXB_OP f64 flush(f64 a) {
  const u64 b = float_bits(a);
  return bits<f64>((b & FloatTypes<f64>::exponent) == 0 ? b & FloatTypes<f64>::sign : b);
}

// Nearest integer, ties to even, by adding and subtracting 2^(mantissa bits); the default rounding
// mode must be in force. Keeps the sign of zero.
CTXB_OP f32 round_even(f32 a) {
#ifdef __SSE4_1__
  return __builtin_rintf(a);
#else
  const f32 magic = 8388608.0F;
  const f32 magnitude = absolute(a);
  const f32 rounded = (magnitude + magic) - magic;
  return magnitude < magic ? with_sign_of(rounded, a) : a;
#endif
}
CTXB_OP f64 round_even(f64 a) {
#ifdef __SSE4_1__
  return __builtin_rint(a);
#else
  const f64 magic = 4503599627370496.0;
  const f64 magnitude = absolute(a);
  const f64 rounded = (magnitude + magic) - magic;
  return magnitude < magic ? with_sign_of(rounded, a) : a;
#endif
}
template <class T>
CTXB_OP T round_down(T a) {
  const T near = round_even(a);
  return with_sign_of(near > a ? near - T{1} : near, a);
}
template <class T>
CTXB_OP T round_up(T a) {
  const T near = round_even(a);
  return with_sign_of(near < a ? near + T{1} : near, a);
}
template <class T>
CTXB_OP T round_to_zero(T a) {
  const T magnitude = absolute(a);
  const T near = round_even(magnitude);
  return with_sign_of(near > magnitude ? near - T{1} : near, a);
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
