// SPDX-License-Identifier: Apache-2.0
// The approximate functions of f32, to at most two units in the last place. No branches, so that
// they vectorise; no fused operations, so that every level gives the same bits.
#include "exec/level/float_common.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

CTXB_OP f32 power_of_two(s32 exponent) {
  return bits<f32>(static_cast<u32>(exponent + 127) << 23);
}

CTXB_OP f32 exp2_core(f32 a) {
  // Beyond these bounds the result is infinite, or zero, anyway. NaN passes the comparisons.
  const f32 high = a > 129.0F ? 129.0F : a;
  const f32 x = high < -152.0F ? -152.0F : high;
  const f32 whole = round_even(x);
  const f32 f = x - whole;
  f32 p = 1.5252734e-5F;
  p = p * f + 1.5403530e-4F;
  p = p * f + 1.3333558e-3F;
  p = p * f + 9.6181291e-3F;
  p = p * f + 5.5504109e-2F;
  p = p * f + 2.4022651e-1F;
  p = p * f + 6.9314718e-1F;
  p = p * f + 1.0F;
  // In two steps, since 2^129 and 2^-152 are no floats.
  const s32 n = static_cast<s32>(x == x ? whole : 0.0F);
  const s32 half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
}
CTXB_OP f32 exp2_approx(f32 a) {
  return exp2_core(a);
}
CTXB_OP f32 exp2_approx_ftz(f32 a) {
  return flush(exp2_core(flush(a)));
}

CTXB_OP f32 log2_core(f32 a) {
  const bool subnormal = (float_bits(a) & 0x7f800000U) == 0;
  const f32 x = subnormal ? a * 8388608.0F : a;
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const u32 shifted = float_bits(x) - 0x3f3504f3U;
  const s32 exponent = static_cast<s32>(shifted) >> 23;
  const f64 m = bits<f32>((shifted & 0x007fffffU) + 0x3f3504f3U);
  // The series of atanh, in f64: near 1 the result is small and must keep its relative accuracy.
  const f64 s = (m - 1.0) / (m + 1.0);
  const f64 z = s * s;
  f64 p = 0.32059889797532520;
  p = p * z + 0.41219858311113240;
  p = p * z + 0.57707801635558536;
  p = p * z + 0.96179669392597560;
  p = p * z + 2.8853900817779268;
  const f64 e = static_cast<f64>(exponent - (subnormal ? 23 : 0));
  const f32 result = static_cast<f32>(e + p * s);
  const f32 infinity = bits<f32>(0x7f800000U);
  const f32 special = a == 0 ? -infinity : (a == infinity ? infinity : bits<f32>(0x7fffffffU));
  return (a > 0) & (a < infinity) ? result : special;
}
CTXB_OP f32 log2_approx(f32 a) {
  return log2_core(a);
}
CTXB_OP f32 log2_approx_ftz(f32 a) {
  return log2_core(flush(a));
}

// Reduced in f64 by multiples of pi/2, which keeps far more than CUDA promises up to 10^6 and more.
template <u32 Shift>
CTXB_OP f32 sine_core(f32 a) {
  const f64 x = a;
  const f64 k = round_even(x * 0.63661977236758134308);
  const f64 exact = (x - k * 1.5707963267948966192) - k * 6.123233995736766e-17;
  const f32 high = static_cast<f32>(exact > 0.8 ? 0.8 : exact);
  const f32 r = high < -0.8F ? -0.8F : high;
  // The quadrant, without a conversion to integers that large arguments would overflow.
  const f64 quarter = k * 0.25;
  const f64 below = round_even(quarter);
  const f32 turn = static_cast<f32>((quarter - below) * 4.0);  // -2 .. 2
  const f32 quadrant = (turn < 0 ? turn + 4.0F : turn) + static_cast<f32>(Shift);
  const f32 q = quadrant >= 4.0F ? quadrant - 4.0F : quadrant;
  const f32 z = r * r;
  const f32 sine = ((-1.9515296e-4F * z + 8.3321609e-3F) * z - 1.6666655e-1F) * z * r + r;
  const f32 cosine =
      ((2.4433157e-5F * z - 1.3887316e-3F) * z + 4.1666646e-2F) * z * z - 0.5F * z + 1.0F;
  const bool odd = (q == 1.0F) | (q == 3.0F);
  const f32 chosen = odd ? cosine : sine;
  const f32 result = q >= 2.0F ? -chosen : chosen;
  return a - a == 0 ? result : bits<f32>(0x7fffffffU);
}
CTXB_OP f32 sin_approx(f32 a) {
  return a == 0 ? a : sine_core<0>(a);
}
CTXB_OP f32 cos_approx(f32 a) {
  return sine_core<1>(a);
}
CTXB_OP f32 sin_approx_ftz(f32 a) {
  return flush(sin_approx(flush(a)));
}
CTXB_OP f32 cos_approx_ftz(f32 a) {
  return flush(sine_core<1>(flush(a)));
}

CTXB_OP f32 tanh_approx(f32 a) {
  const f32 magnitude = absolute(a);
  const f32 t = exp2_core((magnitude > 10.0F ? 10.0F : magnitude) * 2.8853901F);
  const f32 value = magnitude < 1e-3F ? magnitude : (t - 1.0F) / (t + 1.0F);
  return with_sign_of(a == a ? value : a, a);
}

}  // namespace

extern const OpEntry math_ops[] = {
    pure<exp2_approx>("ex2.approx.f32"),  pure<exp2_approx_ftz>("ex2.approx.ftz.f32"),
    pure<log2_approx>("lg2.approx.f32"),  pure<log2_approx_ftz>("lg2.approx.ftz.f32"),
    pure<sin_approx>("sin.approx.f32"),   pure<sin_approx_ftz>("sin.approx.ftz.f32"),
    pure<cos_approx>("cos.approx.f32"),   pure<cos_approx_ftz>("cos.approx.ftz.f32"),
    pure<tanh_approx>("tanh.approx.f32"), end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
