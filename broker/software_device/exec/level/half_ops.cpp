// SPDX-License-Identifier: Apache-2.0
// Conversions of the formats of 16 bits; their arithmetic is put together from these and f64's.
#include "exec/level/half.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <class H>
CTXB_OP f32 to_f32(u16 a) {
  return widened(H{a});
}
template <class H>
CTXB_OP f64 to_f64(u16 a) {
  return static_cast<f64>(widened(H{a}));
}
CTXB_OP u16 flush_f16(u16 a) {
  return (a & half_infinity<f16>) == 0 ? a & half_sign : a;
}

// To f64, with the lowest bit set if bits are lost: rounding again is then right.
CTXB_OP f64 odd_from_u64(u64 a) {
  const u64 kept = a & ~0x7ffULL;
  const u64 sticky = kept != a ? kept | 0x800 : a;
  return static_cast<f64>(a < (1ULL << 53) ? a : sticky);
}
CTXB_OP f64 odd_from_s64(u64 a) {
  const bool negative = static_cast<s64>(a) < 0;
  const f64 magnitude = odd_from_u64(negative ? 0 - a : a);
  return negative ? -magnitude : magnitude;
}

// a * b + c where the product is exact, rounded to odd.
CTXB_OP f64 fma_odd(f64 a, f64 b, f64 c) {
  const f64 product = a * b;
  const f64 sum = product + c;
  const f64 part = sum - product;
  const f64 error = (product - (sum - part)) + (c - part);
  const u64 raw = float_bits(sum);
  const bool inexact = (error < 0) | (error > 0);
  const bool away = (error > 0) == (sum > 0);
  const u64 odd = away ? raw + 1 : raw - 1;
  return bits<f64>(inexact & ((raw & 1) == 0) ? odd : raw);
}

}  // namespace

#define CTXB_HALF(type)                                                       \
  pure<to_f32<type>>("cvt.f32." #type), pure<to_f64<type>>("cvt.f64." #type), \
      pure<rounded<type, RoundTo::nearest>>("cvt.rn." #type ".f64"),          \
      pure<rounded<type, RoundTo::zero>>("cvt.rz." #type ".f64"),             \
      pure<rounded<type, RoundTo::down>>("cvt.rm." #type ".f64"),             \
      pure<rounded<type, RoundTo::up>>("cvt.rp." #type ".f64")

extern const OpEntry half_ops[] = {
    CTXB_HALF(f16),
    CTXB_HALF(bf16),
    pure<flush_f16>("flush.f16"),
    pure<odd_from_u64>("cvt.odd.f64.u64"),
    pure<odd_from_s64>("cvt.odd.f64.s64"),
    pure<fma_odd>("fma.odd.f64"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
