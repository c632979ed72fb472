// SPDX-License-Identifier: Apache-2.0
// The formats of 16 bits, f16 and bf16. Their arithmetic is done in f64, where a sum or a product
// of two is exact or as good as exact, and rounded once.
#pragma once

#include "exec/level/float_common.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {

// What takes part in no arithmetic but addition.
template <u32 MantissaBits, u32 ExponentBias>
struct Half {
  static constexpr u32 mantissa = MantissaBits, bias = ExponentBias;
  u16 raw;
};
using f16 = Half<10, 15>;
using bf16 = Half<7, 127>;
template <class H>
struct PairOf {
  H low, high;
};
using f16x2 = PairOf<f16>;
using bf16x2 = PairOf<bf16>;

inline constexpr u16 half_sign = 0x8000, half_nan = 0x7fff;
template <class H>
inline constexpr u16 half_infinity = static_cast<u16>((2 * H::bias + 1) << H::mantissa);

CTXB_OP f32 widened(bf16 a) {
  const u32 raw = static_cast<u32>(a.raw) << 16;
  return bits<f32>((raw & 0x7fffffffU) > 0x7f800000U ? 0x7fffffffU : raw);
}
CTXB_OP f32 widened(f16 a) {
  const u32 magnitude = a.raw & 0x7fffU;
  // The exponent's bias is 112 less; multiplying makes subnormal numbers right, too.
  const u32 finite = float_bits(bits<f32>(magnitude << 13) * bits<f32>((127U + 112U) << 23));
  const u32 infinite = magnitude > half_infinity<f16> ? 0x7fffffffU : 0x7f800000U;
  const u32 sign = static_cast<u32>(a.raw & half_sign) << 16;
  const u32 value = magnitude < half_infinity<f16> ? finite : infinite;
  return bits<f32>(value == 0x7fffffffU ? value : value | sign);
}

enum class RoundTo : u8 { nearest, zero, down, up };

// Once, in the direction that is asked for. NaN becomes the one that GPUs give.
template <class H, RoundTo Direction>
CTXB_OP u16 rounded(f64 a) {
  const u64 raw = float_bits(a), magnitude = raw & ~FloatTypes<f64>::sign;
  const bool negative = raw != magnitude;
  const s64 exponent = static_cast<s64>(magnitude >> 52) - 1023 + H::bias;  // as H writes it
  const s64 missing = 1 - exponent;  // positions that a subnormal result has less
  const u64 lost = 52 - H::mantissa + static_cast<u64>(missing > 0 ? missing : 0);
  const u64 shift = lost > 62 ? 62 : lost;
  const u64 hidden = magnitude < (1ULL << 52) ? 0 : 1ULL << 52;
  const u64 significand = (magnitude & ((1ULL << 52) - 1)) | hidden;
  const u64 kept = significand >> shift, rest = significand & ((1ULL << shift) - 1);
  const u64 half = 1ULL << (shift - 1);
  bool away = false;
  if constexpr (Direction == RoundTo::nearest) away = rest > half - (kept & 1);
  if constexpr (Direction == RoundTo::down) away = (rest != 0) & negative;
  if constexpr (Direction == RoundTo::up) away = (rest != 0) & !negative;
  // `kept` has the hidden bit of a normal number, and a carry goes into the exponent.
  const s64 before = missing > 0 ? 0 : (exponent - 1) << H::mantissa;
  const s64 value = before + static_cast<s64>(kept + (away ? 1 : 0));
  constexpr s64 infinity = half_infinity<H>;
  constexpr bool to_zero = Direction == RoundTo::zero;
  const bool stays_finite = to_zero | ((Direction == RoundTo::down) & !negative) |
                            ((Direction == RoundTo::up) & negative);
  const bool is_infinite = magnitude == FloatTypes<f64>::exponent;
  const s64 largest = stays_finite & !is_infinite ? infinity - 1 : infinity;
  const u16 number = static_cast<u16>(value < infinity ? value : largest);
  const u16 result = static_cast<u16>(number | (negative ? half_sign : 0));
  return magnitude > FloatTypes<f64>::exponent ? half_nan : result;
}

template <class H>
requires(sizeof(H) == 2) CTXB_OP H operator+(H a, H b) {
  const f64 sum = static_cast<f64>(widened(a)) + static_cast<f64>(widened(b));
  return {rounded<H, RoundTo::nearest>(sum)};
}
template <class H>
CTXB_OP PairOf<H> operator+(PairOf<H> a, PairOf<H> b) {
  return {a.low + b.low, a.high + b.high};
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
