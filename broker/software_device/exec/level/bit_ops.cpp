// SPDX-License-Identifier: Apache-2.0
// Moves, logic, shifts and bit fields.
#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <class T>
CTXB_OP T mov(T a) {
  return a;
}
template <class T>
CTXB_OP T bit_and(T a, T b) {
  return a & b;
}
template <class T>
CTXB_OP T bit_or(T a, T b) {
  return a | b;
}
template <class T>
CTXB_OP T bit_xor(T a, T b) {
  return a ^ b;
}
template <class T>
CTXB_OP T bit_not(T a) {
  return static_cast<T>(~a);
}
template <class T>
CTXB_OP T cnot(T a) {
  return a == 0 ? 1 : 0;
}
CTXB_OP Pred pred_not(Pred a) {
  return a ^ 1;
}
CTXB_OP Pred pred_and_not(Pred a, Pred b) {
  return static_cast<Pred>(a & (b ^ 1));
}

// Shift amounts are clamped at the width.
template <class T>
CTXB_OP T shl(T a, u32 by) {
  constexpr u32 width = sizeof(T) * 8;
  return by < width ? static_cast<T>(static_cast<u64>(a) << (by & 63)) : T{0};
}
template <>
CTXB_OP u32 shl<u32>(u32 a, u32 by) {
  return by < 32 ? a << (by & 31) : 0;
}
template <class T>
CTXB_OP T shr_u(T a, u32 by) {
  constexpr u32 width = sizeof(T) * 8;
  return by < width ? static_cast<T>(a >> (by & (width - 1))) : T{0};
}
template <class T, class S>
CTXB_OP T shr_s(T a, u32 by) {
  constexpr u32 width = sizeof(T) * 8;
  return static_cast<T>(static_cast<S>(a) >> (by < width ? by : width - 1));
}

// Funnel shifts of the pair {b, a}.
CTXB_OP u32 shf_left(u32 a, u32 b, u32 by) {
  return static_cast<u32>(((static_cast<u64>(b) << 32 | a) << by) >> 32);
}
CTXB_OP u32 shf_right(u32 a, u32 b, u32 by) {
  return static_cast<u32>((static_cast<u64>(b) << 32 | a) >> by);
}
CTXB_OP u32 shf_l_wrap(u32 a, u32 b, u32 c) {
  return shf_left(a, b, c & 31);
}
CTXB_OP u32 shf_r_wrap(u32 a, u32 b, u32 c) {
  return shf_right(a, b, c & 31);
}
CTXB_OP u32 shf_l_clamp(u32 a, u32 b, u32 c) {
  return shf_left(a, b, c < 32 ? c : 32);
}
CTXB_OP u32 shf_r_clamp(u32 a, u32 b, u32 c) {
  return shf_right(a, b, c < 32 ? c : 32);
}

CTXB_OP u32 popc_32(u32 a) {
  a -= (a >> 1) & 0x55555555U;
  a = (a & 0x33333333U) + ((a >> 2) & 0x33333333U);
  return (((a + (a >> 4)) & 0x0f0f0f0fU) * 0x01010101U) >> 24;
}
CTXB_OP u32 popc_64(u64 a) {
  return popc_32(static_cast<u32>(a)) + popc_32(static_cast<u32>(a >> 32));
}
CTXB_OP u32 clz_32(u32 a) {
  return a == 0 ? 32 : static_cast<u32>(__builtin_clz(a | 0));
}
CTXB_OP u32 clz_64(u64 a) {
  return a == 0 ? 64 : static_cast<u32>(__builtin_clzll(a));
}
CTXB_OP u32 brev_32(u32 a) {
  a = (a >> 1 & 0x55555555U) | (a & 0x55555555U) << 1;
  a = (a >> 2 & 0x33333333U) | (a & 0x33333333U) << 2;
  a = (a >> 4 & 0x0f0f0f0fU) | (a & 0x0f0f0f0fU) << 4;
  a = (a >> 8 & 0x00ff00ffU) | (a & 0x00ff00ffU) << 8;
  return a >> 16 | a << 16;
}
CTXB_OP u64 brev_64(u64 a) {
  return static_cast<u64>(brev_32(static_cast<u32>(a))) << 32 | brev_32(static_cast<u32>(a >> 32));
}
// The highest set bit (of a negative number: the highest clear one), or all ones.
CTXB_OP u32 bfind_u32(u32 a) {
  return 31U - clz_32(a);
}
CTXB_OP u32 bfind_s32(u32 a) {
  return bfind_u32(static_cast<s32>(a) < 0 ? ~a : a);
}
CTXB_OP u32 bfind_u64(u64 a) {
  return 63U - clz_64(a);
}
CTXB_OP u32 bfind_s64(u64 a) {
  return bfind_u64(static_cast<s64>(a) < 0 ? ~a : a);
}
// bfind.shiftamt: by how much to shift left to bring that bit to the top.
CTXB_OP u32 shiftamt_u32(u32 a) {
  return a == 0 ? ~0U : clz_32(a);
}
CTXB_OP u32 shiftamt_s32(u32 a) {
  return shiftamt_u32(static_cast<s32>(a) < 0 ? ~a : a);
}
CTXB_OP u32 shiftamt_u64(u64 a) {
  return a == 0 ? ~0U : clz_64(a);
}
CTXB_OP u32 shiftamt_s64(u64 a) {
  return shiftamt_u64(static_cast<s64>(a) < 0 ? ~a : a);
}

template <class T>
CTXB_OP T low_bits(u32 count) {
  return count >= sizeof(T) * 8 ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}
// Of a position or length 8 bits count; the 64-bit forms, which hardware has no instruction for,
// are seen to take all.
template <class T>
CTXB_OP u32 field_bound(u32 value) {
  return sizeof(T) == 4 ? value & 255 : (value < 255 ? value : 255);
}
template <class T, bool IsSigned>
CTXB_OP T bfe(T a, u32 position, u32 length) {
  constexpr u32 width = sizeof(T) * 8;
  const u32 at = field_bound<T>(position), count = field_bound<T>(length);
  if (count == 0) return 0;
  const u32 last = at + count - 1;
  const T sign =
      static_cast<T>(IsSigned ? T{0} - (a >> (last < width ? last : width - 1) & 1) : T{0});
  const T field = at < width ? static_cast<T>(a >> at) : sign;
  const u32 valid = at < width ? (count < width - at ? count : width - at) : 0;
  const T mask = low_bits<T>(valid);
  return static_cast<T>((field & mask) | (sign & ~mask));
}
template <class T>
CTXB_OP T bfi(T a, T b, u32 position, u32 length) {
  constexpr u32 width = sizeof(T) * 8;
  const u32 at = field_bound<T>(position), count = field_bound<T>(length);
  if (at >= width) return b;
  const T mask = static_cast<T>(low_bits<T>(count) << at);
  return static_cast<T>((b & ~mask) | ((a << at) & mask));
}
CTXB_OP u32 bmsk_clamp(u32 position, u32 length) {
  if (position >= 32) return 0;
  return low_bits<u32>(length) << position;
}
CTXB_OP u32 bmsk_wrap(u32 position, u32 length) {
  return low_bits<u32>(length & 31) << (position & 31);
}
template <bool IsSigned>
CTXB_OP u32 szext(u32 a, u32 position, bool wrap) {
  const u32 count = wrap ? position & 31 : position;
  if (count == 0) return 0;
  if (count >= 32) return a;
  return IsSigned ? static_cast<u32>(static_cast<s32>(a << (32 - count)) >> (32 - count))
                  : a & low_bits<u32>(count);
}
CTXB_OP u32 szext_wrap_s(u32 a, u32 b) {
  return szext<true>(a, b, true);
}
CTXB_OP u32 szext_wrap_u(u32 a, u32 b) {
  return szext<false>(a, b, true);
}
CTXB_OP u32 szext_clamp_s(u32 a, u32 b) {
  return szext<true>(a, b, false);
}
CTXB_OP u32 szext_clamp_u(u32 a, u32 b) {
  return szext<false>(a, b, false);
}

// prmt: each nibble of the selector names one of the eight bytes of {b, a}; its top bit spreads
// that byte's sign.
CTXB_OP u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 pool = static_cast<u64>(b) << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i);
    const u32 value = static_cast<u32>(pool >> (8 * (nibble & 7))) & 255;
    const u32 spread = (value >> 7) * 255;
    result |= ((nibble & 8) != 0 ? spread : value) << (8 * i);
  }
  return result;
}
enum class Permute { f4e, b4e, rc8, ecl, ecr, rc16 };
constexpr u32 selectors[6][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
    {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
    {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
template <Permute Mode>
CTXB_OP u32 prmt_mode(u32 a, u32 b, u32 c) {
  return prmt(a, b, selectors[static_cast<int>(Mode)][c & 3]);
}

// lop3: any function of three bits, as its truth table.
CTXB_OP u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  for (u32 i = 0; i < 8; ++i) {
    const u32 chosen = 0U - (table >> i & 1);
    result |= chosen & ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
  }
  return result;
}

CTXB_OP u16 low_16(u32 a) {
  return static_cast<u16>(a);
}
CTXB_OP u16 high_16(u32 a) {
  return static_cast<u16>(a >> 16);
}
CTXB_OP u32 low_32(u64 a) {
  return static_cast<u32>(a);
}
CTXB_OP u32 high_32(u64 a) {
  return static_cast<u32>(a >> 32);
}
CTXB_OP u32 pack_16(u16 low, u16 high) {
  return static_cast<u32>(high) << 16 | low;
}
CTXB_OP u64 pack_32(u32 low, u32 high) {
  return static_cast<u64>(high) << 32 | low;
}
// A 64-bit offset into a 32-bit space: what does not fit stays out of range.
CTXB_OP u32 offset_32(u64 a) {
  return a > ~0U ? ~0U : static_cast<u32>(a);
}

}  // namespace

#define CTXB_16_32_64(function, name) \
  pure<function<u16>>(name "16"), pure<function<u32>>(name "32"), pure<function<u64>>(name "64")
#define CTXB_LOGIC(function, name) \
  CTXB_16_32_64(function, name ".b"), pure<function<Pred>>(name ".pred")

extern const OpEntry bit_ops[] = {
    CTXB_LOGIC(mov, "mov"),
    CTXB_LOGIC(bit_and, "and"),
    CTXB_LOGIC(bit_or, "or"),
    CTXB_LOGIC(bit_xor, "xor"),
    CTXB_16_32_64(bit_not, "not.b"),
    pure<pred_not>("not.pred"),
    pure<pred_and_not>("andnot.pred"),
    CTXB_16_32_64(cnot, "cnot.b"),
    CTXB_16_32_64(shl, "shl.b"),
    CTXB_16_32_64(shr_u, "shr.u"),
    pure<shr_s<u16, s16>>("shr.s16"),
    pure<shr_s<u32, s32>>("shr.s32"),
    pure<shr_s<u64, s64>>("shr.s64"),
    pure<shf_l_wrap>("shf.l.wrap.b32"),
    pure<shf_r_wrap>("shf.r.wrap.b32"),
    pure<shf_l_clamp>("shf.l.clamp.b32"),
    pure<shf_r_clamp>("shf.r.clamp.b32"),
    pure<popc_32>("popc.b32"),
    pure<popc_64>("popc.b64"),
    pure<clz_32>("clz.b32"),
    pure<clz_64>("clz.b64"),
    pure<brev_32>("brev.b32"),
    pure<brev_64>("brev.b64"),
    pure<bfind_u32>("bfind.u32"),
    pure<bfind_s32>("bfind.s32"),
    pure<bfind_u64>("bfind.u64"),
    pure<bfind_s64>("bfind.s64"),
    pure<shiftamt_u32>("bfind.shiftamt.u32"),
    pure<shiftamt_s32>("bfind.shiftamt.s32"),
    pure<shiftamt_u64>("bfind.shiftamt.u64"),
    pure<shiftamt_s64>("bfind.shiftamt.s64"),
    pure<bfe<u32, false>>("bfe.u32"),
    pure<bfe<u32, true>>("bfe.s32"),
    pure<bfe<u64, false>>("bfe.u64"),
    pure<bfe<u64, true>>("bfe.s64"),
    pure<bfi<u32>>("bfi.b32"),
    pure<bfi<u64>>("bfi.b64"),
    pure<bmsk_clamp>("bmsk.clamp.b32"),
    pure<bmsk_wrap>("bmsk.wrap.b32"),
    pure<szext_wrap_s>("szext.wrap.s32"),
    pure<szext_wrap_u>("szext.wrap.u32"),
    pure<szext_clamp_s>("szext.clamp.s32"),
    pure<szext_clamp_u>("szext.clamp.u32"),
    pure<prmt>("prmt.b32"),
    pure<prmt_mode<Permute::f4e>>("prmt.b32.f4e"),
    pure<prmt_mode<Permute::b4e>>("prmt.b32.b4e"),
    pure<prmt_mode<Permute::rc8>>("prmt.b32.rc8"),
    pure<prmt_mode<Permute::ecl>>("prmt.b32.ecl"),
    pure<prmt_mode<Permute::ecr>>("prmt.b32.ecr"),
    pure<prmt_mode<Permute::rc16>>("prmt.b32.rc16"),
    pure<lop3>("lop3.b32"),
    pure<low_16>("unpack.low.b32"),
    pure<high_16>("unpack.high.b32"),
    pure<low_32>("unpack.low.b64"),
    pure<high_32>("unpack.high.b64"),
    pure<pack_16>("pack.b32"),
    pure<pack_32>("pack.b64"),
    pure<offset_32>("offset.b32"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
