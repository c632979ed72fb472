// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "instruction_case.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

template <class T>
void check_arithmetic(const std::string& sign, const std::string& bits) {
  using U = std::make_unsigned_t<T>;
  using Wide = std::conditional_t<std::is_signed_v<T>, s128, u128>;
  constexpr int width = sizeof(T) * 8;
  const std::string type = sign + bits;
  check<T, T, T>("add." + type, [](T a, T b) { return T(U(U(a) + U(b))); });
  check<T, T, T>("sub." + type, [](T a, T b) { return T(U(U(a) - U(b))); });
  check<T, T, T>("mul.lo." + type, [](T a, T b) { return T(u128(a) * u128(b)); });
  check<T, T, T>("mul.hi." + type, [](T a, T b) { return T((Wide(a) * Wide(b)) >> width); });
  check<T, T, T, T>("mad.lo." + type, [](T a, T b, T c) { return T(u128(a) * u128(b) + u128(c)); });
  check<T, T, T, T>("mad.hi." + type,
                    [](T a, T b, T c) { return T(u128((Wide(a) * Wide(b)) >> width) + u128(c)); });
  // Division by zero: all ones, as hardware gives.
  check<T, T, T>("div." + type, [](T a, T b) { return b == 0 ? T(-1) : T(Wide(a) / Wide(b)); });
  check<T, T, T>("rem." + type, [](T a, T b) { return b == 0 ? T(-1) : T(Wide(a) % Wide(b)); });
  check<T, T, T>("min." + type, [](T a, T b) { return std::min(a, b); });
  check<T, T, T>("max." + type, [](T a, T b) { return std::max(a, b); });
  check<T, T, T, T>("sad." + type, [](T a, T b, T c) {
    return T(u128(c) + u128(a > b ? Wide(a) - Wide(b) : Wide(b) - Wide(a)));
  });
  check<T, T, u32>("shr." + type,
                   [](T a, u32 by) { return by >= u32(width) ? T(a < 0 ? -1 : 0) : T(a >> by); });
}

TEST(IntegerInstructions, ArithmeticOfEveryWidth) {
  check_arithmetic<u16>("u", "16");
  check_arithmetic<s16>("s", "16");
  check_arithmetic<u32>("u", "32");
  check_arithmetic<s32>("s", "32");
  check_arithmetic<u64>("u", "64");
  check_arithmetic<s64>("s", "64");
}

TEST(IntegerInstructions, WideProducts) {
  check<u32, u16, u16>("mul.wide.u16", [](u16 a, u16 b) { return u32(a) * u32(b); });
  check<s32, s16, s16>("mul.wide.s16", [](s16 a, s16 b) { return s32(a) * s32(b); });
  check<u64, u32, u32>("mul.wide.u32", [](u32 a, u32 b) { return u64(a) * u64(b); });
  check<s64, s32, s32>("mul.wide.s32", [](s32 a, s32 b) { return s64(a) * s64(b); });
  check<u64, u32, u32, u64>("mad.wide.u32",
                            [](u32 a, u32 b, u64 c) { return u64(a) * u64(b) + c; });
  check<u64, s32, s32, u64>("mad.wide.s32",
                            [](s32 a, s32 b, u64 c) { return u64(s64(a) * s64(b)) + c; });
  check<u32, u32, u32>("mul24.lo.u32",
                       [](u32 a, u32 b) { return u32(u64(a & 0xffffff) * u64(b & 0xffffff)); });
  check<s32, s32, s32>("mul24.hi.s32", [](s32 a, s32 b) {
    const s64 x = s64(u64(u32(a)) << 40) >> 40, y = s64(u64(u32(b)) << 40) >> 40;
    return s32((x * y) >> 16);
  });
}

TEST(IntegerInstructions, SignAndSaturation) {
  check<s16, s16>("abs.s16", [](s16 a) { return s16(a < 0 ? -a : a); });
  check<s32, s32>("abs.s32", [](s32 a) { return s32(a < 0 ? 0U - u32(a) : u32(a)); });
  check<s64, s64>("abs.s64", [](s64 a) { return s64(a < 0 ? 0ULL - u64(a) : u64(a)); });
  check<s32, s32>("neg.s32", [](s32 a) { return s32(0U - u32(a)); });
  check<s64, s64>("neg.s64", [](s64 a) { return s64(0ULL - u64(a)); });
  check<s32, s32, s32>("add.sat.s32", [](s32 a, s32 b) {
    return s32(std::clamp<s64>(s64(a) + b, INT32_MIN, INT32_MAX));
  });
  check<s32, s32, s32>("sub.sat.s32", [](s32 a, s32 b) {
    return s32(std::clamp<s64>(s64(a) - b, INT32_MIN, INT32_MAX));
  });
}

TEST(IntegerInstructions, Logic) {
  check<u16, u16, u16>("and.b16", [](u16 a, u16 b) { return u16(a & b); });
  check<u32, u32, u32>("or.b32", [](u32 a, u32 b) { return a | b; });
  check<u64, u64, u64>("xor.b64", [](u64 a, u64 b) { return a ^ b; });
  check<u16, u16>("not.b16", [](u16 a) { return u16(~a); });
  check<u64, u64>("not.b64", [](u64 a) { return ~a; });
  check<u32, u32>("cnot.b32", [](u32 a) { return u32(a == 0); });
  check<bool, bool, bool>("and.pred", [](bool a, bool b) { return a && b; });
  check<bool, bool, bool>("xor.pred", [](bool a, bool b) { return a != b; });
  check<bool, bool>("not.pred", [](bool a) { return !a; });
  check<bool, bool, bool>("or.pred %d, !%0, %1", [](bool a, bool b) { return !a || b; });
  check<u32, u32, u32, u32>("lop3.b32 %d, %0, %1, %2, 0xca",
                            [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
}

TEST(IntegerInstructions, Shifts) {
  check<u16, u16, u32>("shl.b16", [](u16 a, u32 n) { return u16(n > 15 ? 0 : a << n); });
  check<u32, u32, u32>("shl.b32", [](u32 a, u32 n) { return n > 31 ? 0 : a << n; });
  check<u64, u64, u32>("shl.b64", [](u64 a, u32 n) { return n > 63 ? 0 : a << n; });
  check<u32, u32, u32>("shr.b32", [](u32 a, u32 n) { return n > 31 ? 0 : a >> n; });
  check<u32, u32, u32, u32>("shf.l.wrap.b32", [](u32 a, u32 b, u32 n) {
    return u32(((u64(b) << 32 | a) << (n & 31)) >> 32);
  });
  check<u32, u32, u32, u32>(
      "shf.r.wrap.b32", [](u32 a, u32 b, u32 n) { return u32((u64(b) << 32 | a) >> (n & 31)); });
  check<u32, u32, u32, u32>("shf.l.clamp.b32", [](u32 a, u32 b, u32 n) {
    return n >= 32 ? a : u32(((u64(b) << 32 | a) << n) >> 32);
  });
  check<u32, u32, u32, u32>("shf.r.clamp.b32", [](u32 a, u32 b, u32 n) {
    return n >= 32 ? b : u32((u64(b) << 32 | a) >> n);
  });
}

u32 bit_by_bit_permute(u32 a, u32 b, u32 selector) {
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 which = selector >> (4 * i) & 15;
    u32 value = (which & 7) < 4 ? a >> ((which & 7) * 8) : b >> ((which & 3) * 8);
    value &= 255;
    if ((which & 8) != 0) value = (value & 128) != 0 ? 255 : 0;
    result |= value << (8 * i);
  }
  return result;
}

TEST(IntegerInstructions, BitCounting) {
  check<u32, u32>("popc.b32", [](u32 a) { return u32(std::popcount(a)); });
  check<u32, u64>("popc.b64", [](u64 a) { return u32(std::popcount(a)); });
  check<u32, u32>("clz.b32", [](u32 a) { return u32(std::countl_zero(a)); });
  check<u32, u64>("clz.b64", [](u64 a) { return u32(std::countl_zero(a)); });
  check<u32, u32>("bfind.u32", [](u32 a) { return u32(31 - std::countl_zero(a)); });
  check<u32, s32>("bfind.s32",
                  [](s32 a) { return u32(31 - std::countl_zero(a < 0 ? ~u32(a) : u32(a))); });
  check<u32, u64>("bfind.u64", [](u64 a) { return u32(63 - std::countl_zero(a)); });
  check<u32, u32>("bfind.shiftamt.u32",
                  [](u32 a) { return a == 0 ? ~0U : u32(std::countl_zero(a)); });
  check<u32, u32>("brev.b32", [](u32 a) {
    u32 result = 0;
    for (int i = 0; i < 32; ++i) result |= (a >> i & 1) << (31 - i);
    return result;
  });
  check<u64, u64>("brev.b64", [](u64 a) {
    u64 result = 0;
    for (int i = 0; i < 64; ++i) result |= (a >> i & 1) << (63 - i);
    return result;
  });
  check<u32, u32, u32, u32>("prmt.b32", bit_by_bit_permute);
  check<u32, u32, u32, u32>(
      "prmt.b32.f4e", [](u32 a, u32 b, u32 n) { return u32((u64(b) << 32 | a) >> (8 * (n & 3))); });
}

// Of a position or length 8 bits count in 32-bit fields, all in 64-bit ones (as seen on an H200).
template <class T>
u32 bound(u32 value) {
  return sizeof(T) == 4 ? value & 255 : std::min(value, 255U);
}
// As the PTX ISA's own pseudo-code has it, bit by bit.
template <class T, bool IsSigned>
T extract(T a, u32 at, u32 size) {
  constexpr u32 top = sizeof(T) * 8 - 1;
  const u32 position = bound<T>(at), length = bound<T>(size);
  const u64 sign = !IsSigned || length == 0 ? 0 : a >> std::min(position + length - 1, top) & 1;
  T result = 0;
  for (u32 i = 0; i <= top; ++i) {
    const u64 bit = i < length && position + i <= top ? u64(a >> (position + i) & 1) : sign;
    result |= T(bit) << i;
  }
  return result;
}
template <class T>
T insert(T a, T b, u32 at, u32 size) {
  constexpr u32 top = sizeof(T) * 8 - 1;
  const u32 position = bound<T>(at), length = bound<T>(size);
  for (u32 i = 0; i < length && position + i <= top; ++i) {
    b = T((b & ~(T{1} << (position + i))) | ((a >> i & 1) << (position + i)));
  }
  return b;
}

TEST(IntegerInstructions, BitFields) {
  check<u32, u32, u32, u32>("bfe.u32", extract<u32, false>);
  check<u32, u32, u32, u32>("bfe.s32", extract<u32, true>);
  check<u64, u64, u32, u32>("bfe.u64", extract<u64, false>);
  check<u64, u64, u32, u32>("bfe.s64", extract<u64, true>);
  check<u32, u32, u32, u32, u32>("bfi.b32", insert<u32>);
  check<u64, u64, u64, u32, u32>("bfi.b64", insert<u64>);
}

TEST(IntegerInstructions, ExtendedPrecision) {
  check<u64, u64, u64>(
      "{ .reg .b32 al, ah, bl, bh; mov.b64 {al, ah}, %0; mov.b64 {bl, bh}, %1;"
      " add.cc.u32 al, al, bl; addc.u32 ah, ah, bh; mov.b64 %d, {al, ah}; }",
      [](u64 a, u64 b) { return a + b; });
  check<u64, u64, u64>(
      "{ .reg .b32 al, ah, bl, bh; mov.b64 {al, ah}, %0; mov.b64 {bl, bh}, %1;"
      " sub.cc.u32 al, al, bl; subc.u32 ah, ah, bh; mov.b64 %d, {al, ah}; }",
      [](u64 a, u64 b) { return a - b; });
  check<u64, u32, u32, u64>(
      "{ .reg .b32 l, h, cl, ch; mov.b64 {cl, ch}, %2; mad.lo.cc.u32 l, %0, %1, cl;"
      " madc.hi.u32 h, %0, %1, ch; mov.b64 %d, {l, h}; }",
      [](u32 a, u32 b, u64 c) { return u64(a) * b + c; });
}

// A subtraction adds the complement: it carries where it does not borrow.
TEST(IntegerInstructions, MixedCarryChains) {
  check<u32, u32, u32>("{ .reg .b32 l; sub.cc.u32 l, %0, %1; addc.u32 %d, 0, 0; }",
                       [](u32 a, u32 b) { return a >= b ? 1U : 0U; });
  check<u64, u64, u64>("{ .reg .b64 l; sub.cc.u64 l, %0, %1; addc.u64 %d, 0, 0; }",
                       [](u64 a, u64 b) { return a >= b ? u64{1} : u64{0}; });
  check<u32, u32, u32>("{ .reg .b32 l; add.cc.u32 l, %0, %1; subc.u32 %d, 0, 0; }",
                       [](u32 a, u32 b) { return u64{a} + b > 0xffffffffU ? 0U : ~0U; });
  check<u32, u32, u32>("{ .reg .b32 l; sub.cc.u32 l, %0, %1; madc.lo.u32 %d, 0, 0, 0; }",
                       [](u32 a, u32 b) { return a >= b ? 1U : 0U; });
  check<u32, u32, u32, u32>(
      "{ .reg .b32 l; mad.hi.cc.u32 l, %0, %1, %2; subc.cc.u32 l, l, l; addc.u32 %d, 0, 0; }",
      [](u32 a, u32 b, u32 c) { return (u64(a) * b >> 32) + c > 0xffffffffU ? 1U : 0U; });
  // Three words.
  check<u32, u32, u32, u32>(
      "{ .reg .b32 l; sub.cc.u32 l, %0, %1; subc.cc.u32 l, 0, %2; subc.u32 %d, 7, 0; }",
      [](u32 a, u32 b, u32 c) { return c != 0 || a < b ? 6U : 7U; });
}

TEST(IntegerInstructions, Comparisons) {
  check<bool, s16, s16>("setp.lt.s16", [](s16 a, s16 b) { return a < b; });
  check<bool, u16, u16>("setp.le.u16", [](u16 a, u16 b) { return a <= b; });
  check<bool, s32, s32>("setp.gt.s32", [](s32 a, s32 b) { return a > b; });
  check<bool, u32, u32>("setp.ge.u32", [](u32 a, u32 b) { return a >= b; });
  check<bool, s64, s64>("setp.lt.s64", [](s64 a, s64 b) { return a < b; });
  check<bool, u64, u64>("setp.gt.u64", [](u64 a, u64 b) { return a > b; });
  check<bool, u16, u16>("setp.eq.b16", [](u16 a, u16 b) { return a == b; });
  check<bool, u32, u32>("setp.ne.s32", [](u32 a, u32 b) { return a != b; });
  check<bool, u64, u64>("setp.eq.s64", [](u64 a, u64 b) { return a == b; });
  check<bool, u32, u32>("setp.hi.u32", [](u32 a, u32 b) { return a > b; });
  check<bool, u32, u32>("setp.ls.u32", [](u32 a, u32 b) { return a <= b; });
  check<bool, s32, s32, bool>("setp.lt.and.s32", [](s32 a, s32 b, bool c) { return a < b && c; });
  check<bool, s32, s32, bool>("setp.lt.or.s32 %d, %0, %1, !%2",
                              [](s32 a, s32 b, bool c) { return a < b || !c; });
  // The second result: the negated comparison combined with the same predicate.
  check<bool, s32, s32, bool>("{ .reg .pred x; setp.lt.and.s32 x|%d, %0, %1, %2; }",
                              [](s32 a, s32 b, bool c) { return a >= b && c; });
  check<bool, s32, s32>("{ .reg .pred x; setp.eq.s32 x|%d, %0, %1; }",
                        [](s32 a, s32 b) { return a != b; });
  check<u32, s32, s32>("set.lt.u32.s32", [](s32 a, s32 b) { return a < b ? ~0U : 0U; });
  check<float, u32, u32>("set.eq.f32.u32", [](u32 a, u32 b) { return a == b ? 1.0F : 0.0F; });
}

TEST(IntegerInstructions, Selections) {
  check<u16, u16, u16, bool>("selp.b16", [](u16 a, u16 b, bool p) { return p ? a : b; });
  check<u32, u32, u32, bool>("selp.u32", [](u32 a, u32 b, bool p) { return p ? a : b; });
  check<u64, u64, u64, bool>("selp.b64", [](u64 a, u64 b, bool p) { return p ? a : b; });
  check<float, float, float, bool>("selp.f32", [](float a, float b, bool p) { return p ? a : b; });
  check<u32, u32, u32, s32>("slct.u32.s32", [](u32 a, u32 b, s32 c) { return c >= 0 ? a : b; });
  check<u64, u64, u64, float>("slct.b64.f32", [](u64 a, u64 b, float c) { return c >= 0 ? a : b; });
}

TEST(IntegerInstructions, MovesAndPacking) {
  check<u64, u32, u32>("mov.b64 %d, {%0, %1}", [](u32 a, u32 b) { return u64(b) << 32 | a; });
  check<u32, u16, u16>("mov.b32 %d, {%0, %1}", [](u16 a, u16 b) { return u32(b) << 16 | a; });
  check<u64, u16, u16, u16>("mov.b64 %d, {%0, %1, %2, %0}", [](u16 a, u16 b, u16 c) {
    return u64(a) << 48 | u64(c) << 32 | u64(b) << 16 | a;
  });
  check<u32, u64>("{ .reg .b32 l; mov.b64 {l, %d}, %0; }", [](u64 a) { return u32(a >> 32); });
  check<u16, u32>("mov.b32 {%d, _}, %0", [](u32 a) { return u16(a); });
  check<u32, u32>("mov.b32", [](u32 a) { return a; });
}

TEST(IntegerInstructions, DotProducts) {
  check<s32, u32, u32, s32>("dp4a.s32.s32", [](u32 a, u32 b, s32 c) {
    u32 sum = u32(c);
    for (int i = 0; i < 32; i += 8) {
      sum += u32(std::int8_t(a >> i) * std::int8_t(b >> i));
    }
    return s32(sum);
  });
  check<u32, u32, u32, u32>("dp4a.u32.u32", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
  });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
