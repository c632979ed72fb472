// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cfenv>

#include "instruction_case.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using s8 = std::int8_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

TEST(Conversions, BetweenIntegers) {
  check<u32, u16>("cvt.u32.u16", [](u16 a) { return u32(a); });
  check<s32, s16>("cvt.s32.s16", [](s16 a) { return s32(a); });
  check<u64, u32>("cvt.u64.u32", [](u32 a) { return u64(a); });
  check<s64, s32>("cvt.s64.s32", [](s32 a) { return s64(a); });
  check<s64, s16>("cvt.s64.s16", [](s16 a) { return s64(a); });
  check<u16, u32>("cvt.u16.u32", [](u32 a) { return u16(a); });
  check<u16, u64>("cvt.u16.u64", [](u64 a) { return u16(a); });
  check<u32, u64>("cvt.u32.u64", [](u64 a) { return u32(a); });
  // Types narrower than the registers that hold them.
  check<s32, u16>("cvt.s32.s8", [](u16 a) { return s32(s8(a)); });
  check<s32, u32>("cvt.s32.s8", [](u32 a) { return s32(s8(a)); });
  check<u32, u32>("cvt.u32.u8", [](u32 a) { return u32(u8(a)); });
  check<s32, u32>("cvt.s32.s16", [](u32 a) { return s32(s16(a)); });
  check<s64, u64>("cvt.s64.s8", [](u64 a) { return s64(s8(a)); });
  check<u64, u64>("cvt.u64.u32", [](u64 a) { return u64(u32(a)); });
  check<u16, u32>("cvt.u8.u32", [](u32 a) { return u16(u8(a)); });
  check<u32, u32>("cvt.u16.u32", [](u32 a) { return u32(u16(a)); });
  check<u32, u32>("cvt.s8.s32", [](u32 a) { return u32(s8(a)); });
  check<u64, u32>("cvt.s64.s32", [](u32 a) { return u64(s64(s32(a))); });
}

TEST(Conversions, SaturatingBetweenIntegers) {
  check<u16, s32>("cvt.sat.u8.s32", [](s32 a) { return u16(a < 0 ? 0 : a > 255 ? 255 : a); });
  check<s16, s32>("cvt.sat.s8.s32", [](s32 a) { return s16(a < -128 ? -128 : a > 127 ? 127 : a); });
  check<u16, u64>("cvt.sat.u16.u64", [](u64 a) { return u16(a > 65535 ? 65535 : a); });
  check<s32, s64>("cvt.sat.s32.s64", [](s64 a) {
    return s32(a < INT32_MIN ? INT32_MIN : a > INT32_MAX ? INT32_MAX : a);
  });
  check<s32, u32>("cvt.sat.s32.u32", [](u32 a) { return s32(a > INT32_MAX ? INT32_MAX : a); });
  check<u32, s32>("cvt.sat.u32.s32", [](s32 a) { return u32(a < 0 ? 0 : a); });
  check<u64, s64>("cvt.sat.u64.s64", [](s64 a) { return u64(a < 0 ? 0 : a); });
  check<u64, s16>("cvt.sat.u64.s16", [](s16 a) { return u64(a < 0 ? 0 : a); });
}

// 11 significant bits, as a subnormal number fewer; halves away from zero.
u32 to_tf32(float a) {
  if (!std::isfinite(a)) return u32(to_bits(a)) & 0xffffe000;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(a), -126) - 10);
  return u32(to_bits(static_cast<float>(std::round(a / unit) * unit)));
}

TEST(Conversions, ToTf32) {
  check<u32, float>("cvt.rna.tf32.f32", to_tf32);
  check<u32, float>("cvt.rna.satfinite.tf32.f32", [](float a) {
    const u32 bits = to_tf32(a);
    if (std::isfinite(from_bits<float>(bits))) return bits;
    // Of NaN too the bits are one unit less, as ptxas 13.0 has it.
    return bits - 0x2000;
  });
}

// Saturates. NaN is 0, or the top bit alone where a 64-bit type takes part.
template <class To, class From>
To to_integer(From a) {
  using L = std::numeric_limits<To>;
  if (std::isnan(a)) {
    return sizeof(To) == 8 || sizeof(From) == 8 ? To(1ULL << (sizeof(To) * 8 - 1)) : To(0);
  }
  const auto x = static_cast<long double>(a);
  if (x <= static_cast<long double>(L::min())) return L::min();
  if (x >= static_cast<long double>(L::max())) return L::max();
  return static_cast<To>(x);
}

template <class To, class From>
void check_to_integer(const std::string& to, const std::string& from) {
  const std::string end = to + "." + from;
  check<To, From>("cvt.rzi." + end, [](From a) { return to_integer<To>(std::trunc(a)); });
  check<To, From>("cvt.rni." + end, [](From a) { return to_integer<To>(std::nearbyint(a)); });
  check<To, From>("cvt.rmi." + end, [](From a) { return to_integer<To>(std::floor(a)); });
  check<To, From>("cvt.rpi." + end, [](From a) { return to_integer<To>(std::ceil(a)); });
}

TEST(Conversions, FloatsToIntegers) {
  check_to_integer<u16, float>("u16", "f32");
  check_to_integer<s16, float>("s16", "f32");
  check_to_integer<u32, float>("u32", "f32");
  check_to_integer<s32, float>("s32", "f32");
  check_to_integer<u64, float>("u64", "f32");
  check_to_integer<s64, float>("s64", "f32");
  check_to_integer<u16, double>("u16", "f64");
  check_to_integer<s16, double>("s16", "f64");
  check_to_integer<u32, double>("u32", "f64");
  check_to_integer<s32, double>("s32", "f64");
  check_to_integer<u64, double>("u64", "f64");
  check_to_integer<s64, double>("s64", "f64");
  check<u16, float>("cvt.rzi.u8.f32", [](float a) { return u16(to_integer<u8>(std::trunc(a))); });
  check<s16, float>("cvt.rni.s8.f32",
                    [](float a) { return s16(to_integer<s8>(std::nearbyint(a))); });
  check<u32, float>("cvt.rzi.u8.f32", [](float a) { return u32(to_integer<u8>(std::trunc(a))); });
}

template <int Mode, class To, class From>
To converted(From a) {
  volatile From x = a;
  std::fesetround(Mode);
  volatile To result = static_cast<To>(x);
  std::fesetround(FE_TONEAREST);
  return result;
}

template <class From>
void check_from_integer(const std::string& from) {
  check<float, From>("cvt.rn.f32." + from, converted<FE_TONEAREST, float, From>);
  check<float, From>("cvt.rz.f32." + from, converted<FE_TOWARDZERO, float, From>);
  check<float, From>("cvt.rm.f32." + from, converted<FE_DOWNWARD, float, From>);
  check<float, From>("cvt.rp.f32." + from, converted<FE_UPWARD, float, From>);
  check<double, From>("cvt.rn.f64." + from, converted<FE_TONEAREST, double, From>);
  check<double, From>("cvt.rz.f64." + from, converted<FE_TOWARDZERO, double, From>);
}

TEST(Conversions, IntegersToFloats) {
  check_from_integer<u16>("u16");
  check_from_integer<s16>("s16");
  check_from_integer<u32>("u32");
  check_from_integer<s32>("s32");
  check_from_integer<s64>("s64");
  check<float, u64>("cvt.rn.f32.u64", converted<FE_TONEAREST, float, u64>);
  check<double, u64>("cvt.rn.f64.u64", converted<FE_TONEAREST, double, u64>);
  check<float, u16>("cvt.rn.f32.u8", [](u16 a) { return float(u8(a)); });
  check<float, u32>("cvt.rn.f32.s8", [](u32 a) { return float(s8(a)); });
}

template <class T>
void check_integral(const std::string& type) {
  const std::string end = type + "." + type;
  check<T, T>("cvt.rni." + end, [](T a) { return std::nearbyint(a); });
  check<T, T>("cvt.rzi." + end, [](T a) { return std::trunc(a); });
  check<T, T>("cvt.rmi." + end, [](T a) { return std::floor(a); });
  check<T, T>("cvt.rpi." + end, [](T a) { return std::ceil(a); });
}

TEST(Conversions, BetweenFloats) {
  check<double, float>("cvt.f64.f32", [](float a) { return double(a); });
  check<float, double>("cvt.rn.f32.f64", converted<FE_TONEAREST, float, double>);
  check<float, double>("cvt.rz.f32.f64", converted<FE_TOWARDZERO, float, double>);
  check<float, double>("cvt.rm.f32.f64", converted<FE_DOWNWARD, float, double>);
  check<float, double>("cvt.rp.f32.f64", converted<FE_UPWARD, float, double>);
  check_integral<float>("f32");
  check_integral<double>("f64");
  check<float, float>("cvt.sat.f32.f32", [](float a) {
    return !(a > 0) ? 0.0F : a > 1 ? 1.0F : a;
  });
  check<float, float>("cvt.ftz.f32.f32", [](float a) {
    return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0F, a) : a;
  });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
