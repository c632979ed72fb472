// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic. Signed types compute in unsigned ones, so that overflow wraps as in PTX.
#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

template <class T>
struct Types;
template <>
struct Types<u8> {
  using Signed = s8;
};
template <>
struct Types<u16> {
  using Signed = s16;
  using Wide = u32;
  using SignedWide = s32;
};
template <>
struct Types<u32> {
  using Signed = s32;
  using Wide = u64;
  using SignedWide = s64;
};
template <>
struct Types<u64> {
  using Signed = s64;
  using Wide = u128;
  using SignedWide = s128;
};
template <class T>
using Signed = typename Types<T>::Signed;
template <class T>
using Wide = typename Types<T>::Wide;
template <class T>
using SignedWide = typename Types<T>::SignedWide;
template <class T>
constexpr u32 width_of = sizeof(T) * 8;

template <class T>
CTXB_OP T add(T a, T b) {
  return static_cast<T>(a + b);
}
template <class T>
CTXB_OP T sub(T a, T b) {
  return static_cast<T>(a - b);
}
template <class T>
CTXB_OP T mul_lo(T a, T b) {
  return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}
template <>
CTXB_OP u64 mul_lo<u64>(u64 a, u64 b) {
  return a * b;
}
template <>
CTXB_OP u32 mul_lo<u32>(u32 a, u32 b) {
  return a * b;
}
template <class T>
CTXB_OP T mul_hi_u(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * b) >> width_of<T>);
}
template <class T>
CTXB_OP T mul_hi_s(T a, T b) {
  return static_cast<T>(
      (static_cast<SignedWide<T>>(static_cast<Signed<T>>(a)) * static_cast<Signed<T>>(b)) >>
      width_of<T>);
}
template <class T>
CTXB_OP Wide<T> mul_wide_u(T a, T b) {
  return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
}
template <class T>
CTXB_OP Wide<T> mul_wide_s(T a, T b) {
  return static_cast<Wide<T>>(static_cast<SignedWide<T>>(static_cast<Signed<T>>(a)) *
                              static_cast<SignedWide<T>>(static_cast<Signed<T>>(b)));
}
template <class T>
CTXB_OP T mad_lo(T a, T b, T c) {
  return static_cast<T>(mul_lo<T>(a, b) + c);
}
template <class T>
CTXB_OP T mad_hi_u(T a, T b, T c) {
  return static_cast<T>(mul_hi_u<T>(a, b) + c);
}
template <class T>
CTXB_OP T mad_hi_s(T a, T b, T c) {
  return static_cast<T>(mul_hi_s<T>(a, b) + c);
}
template <class T>
CTXB_OP Wide<T> mad_wide_u(T a, T b, Wide<T> c) {
  return mul_wide_u<T>(a, b) + c;
}
template <class T>
CTXB_OP Wide<T> mad_wide_s(T a, T b, Wide<T> c) {
  return mul_wide_s<T>(a, b) + c;
}

// 24-bit products: the upper 8 bits of the operands are ignored.
CTXB_OP s32 signed_24(u32 a) {
  return static_cast<s32>(a << 8) >> 8;
}
CTXB_OP u32 mul24_lo_u(u32 a, u32 b) {
  return (a & 0xffffff) * (b & 0xffffff);
}
CTXB_OP u32 mul24_lo_s(u32 a, u32 b) {
  return static_cast<u32>(static_cast<s64>(signed_24(a)) * signed_24(b));
}
CTXB_OP u32 mul24_hi_u(u32 a, u32 b) {
  return static_cast<u32>((static_cast<u64>(a & 0xffffff) * (b & 0xffffff)) >> 16);
}
CTXB_OP u32 mul24_hi_s(u32 a, u32 b) {
  return static_cast<u32>((static_cast<s64>(signed_24(a)) * signed_24(b)) >> 16);
}
CTXB_OP u32 mad24_lo_u(u32 a, u32 b, u32 c) {
  return mul24_lo_u(a, b) + c;
}
CTXB_OP u32 mad24_lo_s(u32 a, u32 b, u32 c) {
  return mul24_lo_s(a, b) + c;
}
CTXB_OP u32 mad24_hi_u(u32 a, u32 b, u32 c) {
  return mul24_hi_u(a, b) + c;
}
CTXB_OP u32 mad24_hi_s(u32 a, u32 b, u32 c) {
  return mul24_hi_s(a, b) + c;
}

// Division by zero gives all ones, as quotient and as remainder (so does an H200); the most
// negative number divided by -1 wraps.
template <class T>
CTXB_OP T div_u(T a, T b) {
  return b == 0 ? static_cast<T>(~T{0}) : static_cast<T>(a / (b == 0 ? 1 : b));
}
template <class T>
CTXB_OP T div_s(T a, T b) {
  using S = Signed<T>;
  if (b == 0) return static_cast<T>(~T{0});
  if (b == static_cast<T>(~T{0})) return static_cast<T>(T{0} - a);
  return static_cast<T>(static_cast<S>(a) / static_cast<S>(b));
}
// 32 bits and fewer: exact through f64, which vectorises. The quotient of two 32-bit integers is
// never close enough below an integer to be rounded up to it.
template <>
CTXB_OP u32 div_u<u32>(u32 a, u32 b) {
  const f64 quotient = static_cast<f64>(a) / static_cast<f64>(b == 0 ? 1U : b);
  return b == 0 ? ~0U : static_cast<u32>(static_cast<s64>(quotient));
}
template <>
CTXB_OP u32 div_s<u32>(u32 a, u32 b) {
  const f64 quotient =
      static_cast<f64>(static_cast<s32>(a)) / static_cast<f64>(static_cast<s32>(b == 0 ? 1U : b));
  return b == 0 ? ~0U : static_cast<u32>(static_cast<s64>(quotient));
}
template <>
CTXB_OP u16 div_u<u16>(u16 a, u16 b) {
  return static_cast<u16>(div_u<u32>(a, b));
}
template <>
CTXB_OP u16 div_s<u16>(u16 a, u16 b) {
  return static_cast<u16>(
      div_s<u32>(static_cast<u32>(static_cast<s16>(a)), static_cast<u32>(static_cast<s16>(b))));
}
template <class T>
CTXB_OP T rem_u(T a, T b) {
  return b == 0 ? static_cast<T>(~T{0}) : static_cast<T>(a - mul_lo<T>(div_u<T>(a, b), b));
}
template <class T>
CTXB_OP T rem_s(T a, T b) {
  return b == 0 ? static_cast<T>(~T{0}) : static_cast<T>(a - mul_lo<T>(div_s<T>(a, b), b));
}

template <class T>
CTXB_OP T neg(T a) {
  return static_cast<T>(T{0} - a);
}
template <class T>
CTXB_OP T abs_s(T a) {
  return static_cast<Signed<T>>(a) < 0 ? neg<T>(a) : a;
}
template <class T>
CTXB_OP T min_u(T a, T b) {
  return a < b ? a : b;
}
template <class T>
CTXB_OP T max_u(T a, T b) {
  return a > b ? a : b;
}
template <class T>
CTXB_OP T min_s(T a, T b) {
  return static_cast<Signed<T>>(a) < static_cast<Signed<T>>(b) ? a : b;
}
template <class T>
CTXB_OP T max_s(T a, T b) {
  return static_cast<Signed<T>>(a) > static_cast<Signed<T>>(b) ? a : b;
}
template <class T>
CTXB_OP T sad_u(T a, T b, T c) {
  return static_cast<T>(c + (a > b ? a - b : b - a));
}
template <class T>
CTXB_OP T sad_s(T a, T b, T c) {
  return static_cast<T>(c +
                        (static_cast<Signed<T>>(a) > static_cast<Signed<T>>(b) ? a - b : b - a));
}

CTXB_OP u32 clamp_s32(s64 value) {
  const s64 low = value < -2147483648LL ? -2147483648LL : value;
  return static_cast<u32>(low > 2147483647LL ? 2147483647LL : low);
}
CTXB_OP s64 sign(u32 a) {
  return static_cast<s32>(a);
}
CTXB_OP u32 add_sat(u32 a, u32 b) {
  return clamp_s32(sign(a) + sign(b));
}
CTXB_OP u32 sub_sat(u32 a, u32 b) {
  return clamp_s32(sign(a) - sign(b));
}
CTXB_OP u32 mad_hi_sat(u32 a, u32 b, u32 c) {
  return clamp_s32(((sign(a) * sign(b)) >> 32) + sign(c));
}

// Extended precision: carries are predicates, one operation for the sum and one for the carry. A
// subtraction adds the complement, so its bit is a carry too: clear where it borrows.
template <class T>
CTXB_OP T addc(T a, T b, Pred carry) {
  return static_cast<T>(a + b + carry);
}
template <class T>
CTXB_OP Pred addc_carry(T a, T b, Pred carry) {
  const T sum = static_cast<T>(a + b);
  return static_cast<Pred>((sum < a) | (static_cast<T>(sum + carry) < sum));
}
template <class T>
CTXB_OP T subc(T a, T b, Pred carry) {
  return addc<T>(a, static_cast<T>(~b), carry);
}
template <class T>
CTXB_OP Pred subc_carry(T a, T b, Pred carry) {
  return addc_carry<T>(a, static_cast<T>(~b), carry);
}

// Sums of four 8-bit (two 16-bit by 8-bit) products.
template <class A, class B>
CTXB_OP u32 dp4a(u32 a, u32 b, u32 c) {
  u32 sum = c;
  for (u32 i = 0; i < 32; i += 8) {
    sum += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> i)) *
                            static_cast<s32>(static_cast<B>(b >> i)));
  }
  return sum;
}
template <class A, class B, u32 First>
CTXB_OP u32 dp2a(u32 a, u32 b, u32 c) {
  u32 sum = c;
  for (u32 i = 0; i < 2; ++i) {
    sum += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (16 * i))) *
                            static_cast<s32>(static_cast<B>(b >> (First + 8 * i))));
  }
  return sum;
}

}  // namespace

#define CTXB_16_32_64(function, name) \
  pure<function<u16>>(name "16"), pure<function<u32>>(name "32"), pure<function<u64>>(name "64")
#define CTXB_32_64(function, name) pure<function<u32>>(name "32"), pure<function<u64>>(name "64")

extern const OpEntry integer_ops[] = {
    CTXB_16_32_64(add, "add.b"),
    CTXB_16_32_64(sub, "sub.b"),
    CTXB_16_32_64(mul_lo, "mul.lo.b"),
    CTXB_16_32_64(mul_hi_u, "mul.hi.u"),
    CTXB_16_32_64(mul_hi_s, "mul.hi.s"),
    pure<mul_wide_u<u16>>("mul.wide.u16"),
    pure<mul_wide_u<u32>>("mul.wide.u32"),
    pure<mul_wide_s<u16>>("mul.wide.s16"),
    pure<mul_wide_s<u32>>("mul.wide.s32"),
    CTXB_16_32_64(mad_lo, "mad.lo.b"),
    CTXB_16_32_64(mad_hi_u, "mad.hi.u"),
    CTXB_16_32_64(mad_hi_s, "mad.hi.s"),
    pure<mad_wide_u<u16>>("mad.wide.u16"),
    pure<mad_wide_u<u32>>("mad.wide.u32"),
    pure<mad_wide_s<u16>>("mad.wide.s16"),
    pure<mad_wide_s<u32>>("mad.wide.s32"),
    pure<mul24_lo_u>("mul24.lo.u32"),
    pure<mul24_lo_s>("mul24.lo.s32"),
    pure<mul24_hi_u>("mul24.hi.u32"),
    pure<mul24_hi_s>("mul24.hi.s32"),
    pure<mad24_lo_u>("mad24.lo.u32"),
    pure<mad24_lo_s>("mad24.lo.s32"),
    pure<mad24_hi_u>("mad24.hi.u32"),
    pure<mad24_hi_s>("mad24.hi.s32"),
    CTXB_16_32_64(div_u, "div.u"),
    CTXB_16_32_64(div_s, "div.s"),
    CTXB_16_32_64(rem_u, "rem.u"),
    CTXB_16_32_64(rem_s, "rem.s"),
    CTXB_16_32_64(neg, "neg.s"),
    CTXB_16_32_64(abs_s, "abs.s"),
    CTXB_16_32_64(min_u, "min.u"),
    CTXB_16_32_64(min_s, "min.s"),
    CTXB_16_32_64(max_u, "max.u"),
    CTXB_16_32_64(max_s, "max.s"),
    CTXB_16_32_64(sad_u, "sad.u"),
    CTXB_16_32_64(sad_s, "sad.s"),
    pure<add_sat>("add.sat.s32"),
    pure<sub_sat>("sub.sat.s32"),
    pure<mad_hi_sat>("mad.hi.sat.s32"),
    CTXB_32_64(addc, "addc.b"),
    CTXB_32_64(addc_carry, "addc.carry.b"),
    CTXB_32_64(subc, "subc.b"),
    CTXB_32_64(subc_carry, "subc.carry.b"),
    pure<dp4a<u8, u8>>("dp4a.u32.u32"),
    pure<dp4a<u8, s8>>("dp4a.u32.s32"),
    pure<dp4a<s8, u8>>("dp4a.s32.u32"),
    pure<dp4a<s8, s8>>("dp4a.s32.s32"),
    pure<dp2a<u16, u8, 0>>("dp2a.lo.u32.u32"),
    pure<dp2a<u16, s8, 0>>("dp2a.lo.u32.s32"),
    pure<dp2a<s16, u8, 0>>("dp2a.lo.s32.u32"),
    pure<dp2a<s16, s8, 0>>("dp2a.lo.s32.s32"),
    pure<dp2a<u16, u8, 16>>("dp2a.hi.u32.u32"),
    pure<dp2a<u16, s8, 16>>("dp2a.hi.u32.s32"),
    pure<dp2a<s16, u8, 16>>("dp2a.hi.s32.u32"),
    pure<dp2a<s16, s8, 16>>("dp2a.hi.s32.s32"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
