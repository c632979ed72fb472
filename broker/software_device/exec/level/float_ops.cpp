// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic that IEEE 754 defines. Rounding modes other than to nearest are set by
// an instruction before and after ("set_rounding"), so one function serves all of them.
#include "exec/level/float_common.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <class T>
CTXB_OP T add(T a, T b) {
  return a + b;
}
template <class T>
CTXB_OP T sub(T a, T b) {
  return a - b;
}
template <class T>
CTXB_OP T mul(T a, T b) {
  return a * b;
}
template <class T>
CTXB_OP T div(T a, T b) {
  return a / b;
}

CTXB_OP f64 fma_exact(f64 a, f64 b, f64 c) {
  return __builtin_fma(a, b, c);
}
CTXB_OP f32 fma_exact(f32 a, f32 b, f32 c) {
  return __builtin_fmaf(a, b, c);
}
CTXB_OP f64 fma(f64 a, f64 b, f64 c) {
  return __builtin_fma(a, b, c);
}
CTXB_OP f32 fma(f32 a, f32 b, f32 c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  // The product is exact in f64. The sum is rounded to odd there, which makes the final rounding
  // to f32 correct. Only for rounding to nearest: the error term needs it.
  const f64 product = static_cast<f64>(a) * static_cast<f64>(b);
  const f64 addend = c;
  f64 sum = product + addend;
  const f64 part = sum - product;
  const f64 error = (product - (sum - part)) + (addend - part);
  const u64 raw = bits<u64>(sum);
  const bool inexact = (error < 0) | (error > 0);
  const bool away = (error > 0) == (sum > 0);
  const u64 odd = away ? raw + 1 : raw - 1;
  sum = bits<f64>(inexact & ((raw & 1) == 0) ? odd : raw);
  return static_cast<f32>(sum);
#endif
}
template <class T>
CTXB_OP T mad(T a, T b, T c) {
  return fma(a, b, c);
}
template <class T>
CTXB_OP T mad_exact(T a, T b, T c) {
  return fma_exact(a, b, c);
}

CTXB_OP f32 root(f32 a) {
  return __builtin_sqrtf(a);
}
CTXB_OP f64 root(f64 a) {
  return __builtin_sqrt(a);
}
template <class T>
CTXB_OP T square_root(T a) {
  return root(a);
}
template <class T>
CTXB_OP T reciprocal(T a) {
  return T{1} / a;
}
template <class T>
CTXB_OP T reciprocal_root(T a) {
  return T{1} / root(a);
}
template <class T>
CTXB_OP T negate(T a) {
  return bits<T>(static_cast<Bits<T>>(float_bits(a) ^ FloatTypes<T>::sign));
}
template <class T>
CTXB_OP T magnitude(T a) {
  return absolute(a);
}
template <class T>
CTXB_OP T copysign(T sign, T magnitude_of) {
  return with_sign_of(magnitude_of, sign);
}

// The number if the other is NaN; -0 is below +0; two NaNs give the canonical one.
template <class T>
CTXB_OP T canonical_nan() {
  return bits<T>(FloatTypes<T>::nan);
}
template <class T>
CTXB_OP bool is_negative(T a) {
  return (float_bits(a) & FloatTypes<T>::sign) != 0;
}
template <class T>
CTXB_OP T smaller(T a, T b) {
  const T number = (a < b) | ((a == b) & is_negative(a)) ? a : b;
  return a != a ? (b != b ? canonical_nan<T>() : b) : (b != b ? a : number);
}
template <class T>
CTXB_OP T larger(T a, T b) {
  const T number = (a > b) | ((a == b) & !is_negative(a)) ? a : b;
  return a != a ? (b != b ? canonical_nan<T>() : b) : (b != b ? a : number);
}
template <class T>
CTXB_OP T smaller_nan(T a, T b) {
  return (a != a) | (b != b) ? canonical_nan<T>() : smaller(a, b);
}
template <class T>
CTXB_OP T larger_nan(T a, T b) {
  return (a != a) | (b != b) ? canonical_nan<T>() : larger(a, b);
}
template <class T, T (*F)(T, T)>
CTXB_OP T signed_by_both(T a, T b) {
  const T chosen = F(absolute(a), absolute(b));
  const auto sign = static_cast<Bits<T>>((float_bits(a) ^ float_bits(b)) & FloatTypes<T>::sign);
  return bits<T>(static_cast<Bits<T>>(float_bits(chosen) | sign));
}

// .sat: into [0, 1]; NaN becomes 0.
template <class T>
CTXB_OP T saturate(T a) {
  const T low = a > T{0} ? a : T{0};
  return low > T{1} ? T{1} : low;
}

// With .ftz: operands and result lose their subnormal numbers.
template <f32 (*F)(f32)>
CTXB_OP f32 ftz1(f32 a) {
  return flush(F(flush(a)));
}
template <f32 (*F)(f32, f32)>
CTXB_OP f32 ftz2(f32 a, f32 b) {
  return flush(F(flush(a), flush(b)));
}
template <f32 (*F)(f32, f32, f32)>
CTXB_OP f32 ftz3(f32 a, f32 b, f32 c) {
  return flush(F(flush(a), flush(b), flush(c)));
}

// rcp.approx.ftz.f64 and its like give the upper half of the result only.
CTXB_OP f32 flush_single(f32 a) {
  return flush(a);
}
CTXB_OP f64 upper_half(f64 a) {
  return bits<f64>(float_bits(a) & 0xffffffff00000000ULL);
}
CTXB_OP f64 rcp_approx(f64 a) {
  return upper_half(flush(reciprocal<f64>(flush(a))));
}
CTXB_OP f64 rsqrt_approx_ftz(f64 a) {
  return upper_half(flush(reciprocal_root<f64>(flush(a))));
}

CTXB_OP Pred is_finite(u64 magnitude, u64 exponent) {
  return magnitude < exponent;
}
template <class T>
CTXB_OP Pred test_finite(T a) {
  return is_finite(float_bits(absolute(a)), FloatTypes<T>::exponent);
}
template <class T>
CTXB_OP Pred test_infinite(T a) {
  return float_bits(absolute(a)) == FloatTypes<T>::exponent;
}
template <class T>
CTXB_OP Pred test_number(T a) {
  return a == a;
}
template <class T>
CTXB_OP Pred test_nan(T a) {
  return a != a;
}
template <class T>
CTXB_OP Pred test_subnormal(T a) {
  const auto b = float_bits(absolute(a));
  return (b != 0) & ((b & FloatTypes<T>::exponent) == 0);
}
template <class T>
CTXB_OP Pred test_normal(T a) {
  const auto e = float_bits(a) & FloatTypes<T>::exponent;
  return (a == 0) | ((e != 0) & (e != FloatTypes<T>::exponent));  // zero counts, as on hardware
}

}  // namespace

#define CTXB_FLOATS(function, name) \
  pure<function<f32>>(name ".f32"), pure<function<f64>>(name ".f64")
#define CTXB_FTZ1(function, name) \
  CTXB_FLOATS(function, name), pure<ftz1<function<f32>>>(name ".ftz.f32")
#define CTXB_FTZ2(function, name) \
  CTXB_FLOATS(function, name), pure<ftz2<function<f32>>>(name ".ftz.f32")
#define CTXB_FTZ3(function, name) \
  CTXB_FLOATS(function, name), pure<ftz3<function<f32>>>(name ".ftz.f32")

#define CTXB_BY_BOTH(function, name)                     \
  pure<signed_by_both<f32, function<f32>>>(name ".f32"), \
      pure<ftz2<signed_by_both<f32, function<f32>>>>(name ".ftz.f32")

extern const OpEntry float_ops[] = {
    CTXB_FTZ2(add, "add"),
    CTXB_FTZ2(sub, "sub"),
    CTXB_FTZ2(mul, "mul"),
    CTXB_FTZ2(div, "div"),
    CTXB_FTZ3(mad, "fma"),
    CTXB_FTZ3(mad_exact, "fma.exact"),
    CTXB_FTZ1(square_root, "sqrt"),
    CTXB_FTZ1(reciprocal, "rcp"),
    CTXB_FTZ1(reciprocal_root, "rsqrt"),
    CTXB_FTZ1(negate, "neg"),
    CTXB_FTZ1(magnitude, "abs"),
    CTXB_FLOATS(copysign, "copysign"),
    CTXB_FTZ2(smaller, "min"),
    CTXB_FTZ2(larger, "max"),
    CTXB_FTZ2(smaller_nan, "min.NaN"),
    CTXB_FTZ2(larger_nan, "max.NaN"),
    CTXB_BY_BOTH(smaller, "min.xorsign.abs"),
    CTXB_BY_BOTH(larger, "max.xorsign.abs"),
    CTXB_BY_BOTH(smaller_nan, "min.NaN.xorsign.abs"),
    CTXB_BY_BOTH(larger_nan, "max.NaN.xorsign.abs"),
    CTXB_FLOATS(saturate, "sat"),
    pure<flush_single>("flush.f32"),
    pure<rcp_approx>("rcp.approx.ftz.f64"),
    pure<rsqrt_approx_ftz>("rsqrt.approx.ftz.f64"),
    CTXB_FLOATS(test_finite, "testp.finite"),
    CTXB_FLOATS(test_infinite, "testp.infinite"),
    CTXB_FLOATS(test_number, "testp.number"),
    CTXB_FLOATS(test_nan, "testp.notanumber"),
    CTXB_FLOATS(test_subnormal, "testp.subnormal"),
    CTXB_FLOATS(test_normal, "testp.normal"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
