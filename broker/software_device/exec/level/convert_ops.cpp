// SPDX-License-Identifier: Apache-2.0
// Conversions between register widths, integers and floats. cvt is made of these.
#include "exec/level/float_common.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <class To, class From>
CTXB_OP To cast(From a) {
  return static_cast<To>(a);
}
// The low bits of a register, extended to all of it.
template <class Register, class Narrow>
CTXB_OP Register narrow(Register a) {
  return static_cast<Register>(static_cast<Narrow>(a));
}

// cvt.sat between integers, on a value extended to 64 bits.
template <s64 Low, s64 High>
CTXB_OP u64 clamp_signed(u64 a) {
  const s64 value = static_cast<s64>(a);
  const s64 raised = value < Low ? Low : value;
  return static_cast<u64>(raised > High ? High : raised);
}
template <u64 High>
CTXB_OP u64 clamp_unsigned(u64 a) {
  return a > High ? High : a;
}

// Float to integer: truncates what is already integral, saturates. NaN gives 0, or the top bit
// alone where a 64-bit type takes part.
template <class Container, class Value, class From, bool IsSigned, u32 Width, bool TopBitForNan>
CTXB_OP Container convert(From a) {
  constexpr From limit = static_cast<From>(1ULL << (Width - 1)) * (IsSigned ? From{1} : From{2});
  constexpr From low = IsSigned ? -limit : From{0};
  constexpr u64 highest = IsSigned ? (1ULL << (Width - 1)) - 1 : (~0ULL >> (64 - Width));
  constexpr u64 lowest = IsSigned ? 0ULL - (1ULL << (Width - 1)) : 0ULL;
  constexpr u64 for_nan = TopBitForNan ? 1ULL << (Width - 1) : 0ULL;
  const bool inside = (a >= low) & (a < limit);
  const From safe = inside ? a : From{0};
  const Container value = static_cast<Container>(static_cast<Value>(safe));
  const Container outside = static_cast<Container>(a != a ? for_nan : (a < low ? lowest : highest));
  return inside ? value : outside;
}

template <class From, bool TopBit>
CTXB_OP u16 to_u8(From a) {
  return convert<u16, s32, From, false, 8, TopBit>(a);
}
template <class From, bool TopBit>
CTXB_OP u16 to_s8(From a) {
  return convert<u16, s32, From, true, 8, TopBit>(a);
}
template <class From, bool TopBit>
CTXB_OP u16 to_u16(From a) {
  return convert<u16, s32, From, false, 16, TopBit>(a);
}
template <class From, bool TopBit>
CTXB_OP u16 to_s16(From a) {
  return convert<u16, s32, From, true, 16, TopBit>(a);
}
template <class From, bool TopBit>
CTXB_OP u32 to_u32(From a) {
  return convert<u32, u32, From, false, 32, TopBit>(a);
}
template <class From, bool TopBit>
CTXB_OP u32 to_s32(From a) {
  return convert<u32, s32, From, true, 32, TopBit>(a);
}
template <class From>
CTXB_OP u64 to_u64(From a) {
  return convert<u64, u64, From, false, 64, true>(a);
}
template <class From>
CTXB_OP u64 to_s64(From a) {
  return convert<u64, s64, From, true, 64, true>(a);
}

template <class T>
CTXB_OP T integral_even(T a) {
  return round_even(a);
}
template <class T>
CTXB_OP T integral_zero(T a) {
  return round_to_zero(a);
}
template <class T>
CTXB_OP T integral_down(T a) {
  return round_down(a);
}
template <class T>
CTXB_OP T integral_up(T a) {
  return round_up(a);
}

}  // namespace

#define CTXB_FROM_INTEGER(type) \
  pure<cast<f32, type>>("cvt.f32." #type), pure<cast<f64, type>>("cvt.f64." #type)
#define CTXB_TO_INTEGER(from, top)                                                          \
  pure<to_u8<from, top>>("cvt.u8." #from), pure<to_s8<from, top>>("cvt.s8." #from),         \
      pure<to_u16<from, top>>("cvt.u16." #from), pure<to_s16<from, top>>("cvt.s16." #from), \
      pure<to_u32<from, top>>("cvt.u32." #from), pure<to_s32<from, top>>("cvt.s32." #from), \
      pure<to_u64<from>>("cvt.u64." #from), pure<to_s64<from>>("cvt.s64." #from),           \
      pure<integral_even<from>>("round.rni." #from),                                        \
      pure<integral_zero<from>>("round.rzi." #from),                                        \
      pure<integral_down<from>>("round.rmi." #from), pure<integral_up<from>>("round.rpi." #from)
#define CTXB_CLAMP_SIGNED(type, low, high) pure<clamp_signed<low, high>>("clamp." #type ".s64")
#define CTXB_CLAMP_UNSIGNED(type, high) pure<clamp_unsigned<high>>("clamp." #type ".u64")

extern const OpEntry convert_ops[] = {
    pure<cast<u32, u16>>("extend.u16.b32"),
    pure<cast<u32, s16>>("extend.s16.b32"),
    pure<cast<u64, u16>>("extend.u16.b64"),
    pure<cast<u64, s16>>("extend.s16.b64"),
    pure<cast<u64, u32>>("extend.u32.b64"),
    pure<cast<u64, s32>>("extend.s32.b64"),
    pure<cast<u16, u32>>("truncate.b32.b16"),
    pure<cast<u16, u64>>("truncate.b64.b16"),
    pure<cast<u32, u64>>("truncate.b64.b32"),
    pure<narrow<u16, u8>>("narrow.u8.b16"),
    pure<narrow<u16, s8>>("narrow.s8.b16"),
    pure<narrow<u32, u8>>("narrow.u8.b32"),
    pure<narrow<u32, s8>>("narrow.s8.b32"),
    pure<narrow<u32, u16>>("narrow.u16.b32"),
    pure<narrow<u32, s16>>("narrow.s16.b32"),
    pure<narrow<u64, u8>>("narrow.u8.b64"),
    pure<narrow<u64, s8>>("narrow.s8.b64"),
    pure<narrow<u64, u16>>("narrow.u16.b64"),
    pure<narrow<u64, s16>>("narrow.s16.b64"),
    pure<narrow<u64, u32>>("narrow.u32.b64"),
    pure<narrow<u64, s32>>("narrow.s32.b64"),
    CTXB_CLAMP_SIGNED(u8, 0, 255),
    CTXB_CLAMP_SIGNED(s8, -128, 127),
    CTXB_CLAMP_SIGNED(u16, 0, 65535),
    CTXB_CLAMP_SIGNED(s16, -32768, 32767),
    CTXB_CLAMP_SIGNED(u32, 0, 4294967295LL),
    CTXB_CLAMP_SIGNED(s32, -2147483648LL, 2147483647LL),
    CTXB_CLAMP_SIGNED(u64, 0, 9223372036854775807LL),
    CTXB_CLAMP_UNSIGNED(u8, 255),
    CTXB_CLAMP_UNSIGNED(s8, 127),
    CTXB_CLAMP_UNSIGNED(u16, 65535),
    CTXB_CLAMP_UNSIGNED(s16, 32767),
    CTXB_CLAMP_UNSIGNED(u32, 4294967295ULL),
    CTXB_CLAMP_UNSIGNED(s32, 2147483647ULL),
    CTXB_CLAMP_UNSIGNED(s64, 9223372036854775807ULL),
    CTXB_FROM_INTEGER(u16),
    CTXB_FROM_INTEGER(s16),
    CTXB_FROM_INTEGER(u32),
    CTXB_FROM_INTEGER(s32),
    CTXB_FROM_INTEGER(u64),
    CTXB_FROM_INTEGER(s64),
    pure<cast<f64, f32>>("cvt.f64.f32"),
    pure<cast<f32, f64>>("cvt.f32.f64"),
    CTXB_TO_INTEGER(f32, false),
    CTXB_TO_INTEGER(f64, true),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
