// SPDX-License-Identifier: Apache-2.0
#include <cfenv>

#include "instruction_case.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// One operation under a rounding mode. The volatile copies keep the compiler from moving it.
template <int Mode, class T, class F>
T rounded(F f, T a, T b = 0, T c = 0) {
  volatile T x = a, y = b, z = c;
  std::fesetround(Mode);
  volatile T result = f(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

template <int Mode, class T>
void check_rounded(const std::string& mode, const std::string& type) {
  const std::string end = "." + mode + "." + type;
  check<T, T, T>("add" + end, [](T a, T b) {
    return rounded<Mode, T>([](T x, T y, T) { return x + y; }, a, b);
  });
  check<T, T, T>("sub" + end, [](T a, T b) {
    return rounded<Mode, T>([](T x, T y, T) { return x - y; }, a, b);
  });
  check<T, T, T>("mul" + end, [](T a, T b) {
    return rounded<Mode, T>([](T x, T y, T) { return x * y; }, a, b);
  });
  check<T, T, T>("div" + end, [](T a, T b) {
    return rounded<Mode, T>([](T x, T y, T) { return x / y; }, a, b);
  });
  check<T, T>("rcp" + end,
              [](T a) { return rounded<Mode, T>([](T x, T, T) { return T(1) / x; }, a); });
  check<T, T>("sqrt" + end,
              [](T a) { return rounded<Mode, T>([](T x, T, T) { return std::sqrt(x); }, a); });
  check<T, T, T, T>("fma" + end, [](T a, T b, T c) {
    return rounded<Mode, T>([](T x, T y, T z) { return std::fma(x, y, z); }, a, b, c);
  });
}

TEST(FloatInstructions, EveryRoundingModeOfSingles) {
  check_rounded<FE_TONEAREST, float>("rn", "f32");
  check_rounded<FE_TOWARDZERO, float>("rz", "f32");
  check_rounded<FE_DOWNWARD, float>("rm", "f32");
  check_rounded<FE_UPWARD, float>("rp", "f32");
}

TEST(FloatInstructions, EveryRoundingModeOfDoubles) {
  check_rounded<FE_TONEAREST, double>("rn", "f64");
  check_rounded<FE_TOWARDZERO, double>("rz", "f64");
  check_rounded<FE_DOWNWARD, double>("rm", "f64");
  check_rounded<FE_UPWARD, double>("rp", "f64");
}

float flushed(float a) {
  return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0F, a) : a;
}
float saturated(float a) {
  return !(a > 0) ? 0.0F : a > 1 ? 1.0F : a;
}

TEST(FloatInstructions, FlushToZero) {
  check<float, float, float>("add.ftz.f32",
                             [](float a, float b) { return flushed(flushed(a) + flushed(b)); });
  check<float, float, float>("mul.rn.ftz.f32",
                             [](float a, float b) { return flushed(flushed(a) * flushed(b)); });
  check<float, float, float, float>("fma.rn.ftz.f32", [](float a, float b, float c) {
    return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
  });
  check<float, float>("abs.ftz.f32", [](float a) { return std::fabs(flushed(a)); });
  check<float, float>("neg.ftz.f32", [](float a) { return -flushed(a); });
  check<float, float, float>("div.rn.ftz.f32",
                             [](float a, float b) { return flushed(flushed(a) / flushed(b)); });
  check<float, float>("sqrt.approx.ftz.f32", [](float a) { return std::sqrt(flushed(a)); });
  check<bool, float, float>("setp.eq.ftz.f32",
                            [](float a, float b) { return flushed(a) == flushed(b); });
}

TEST(FloatInstructions, Saturation) {
  check<float, float, float>("add.sat.f32", [](float a, float b) { return saturated(a + b); });
  check<float, float, float>("mul.ftz.sat.f32", [](float a, float b) {
    return saturated(flushed(flushed(a) * flushed(b)));
  });
  check<float, float, float, float>(
      "fma.rn.sat.f32", [](float a, float b, float c) { return saturated(std::fma(a, b, c)); });
}

template <class T>
T least(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T greatest(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
void check_exact(const std::string& type) {
  check<T, T, T>("add." + type, [](T a, T b) { return a + b; });
  check<T, T, T>("sub." + type, [](T a, T b) { return a - b; });
  check<T, T, T>("mul." + type, [](T a, T b) { return a * b; });
  check<T, T, T>("min." + type, least<T>);
  check<T, T, T>("max." + type, greatest<T>);
  check<T, T>("abs." + type, [](T a) { return std::fabs(a); });
  check<T, T>("neg." + type, [](T a) { return -a; });
  check<T, T, T>("copysign." + type, [](T a, T b) { return std::copysign(b, a); });
  check<T, T, T, T>("mad.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
}

TEST(FloatInstructions, ExactOperations) {
  check_exact<float>("f32");
  check_exact<double>("f64");
  check<float, float, float>("min.NaN.f32", [](float a, float b) {
    return std::isnan(a) || std::isnan(b) ? NAN : least(a, b);
  });
  check<float, float, float>("max.NaN.xorsign.abs.f32", [](float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    const float chosen = greatest(std::fabs(a), std::fabs(b));
    return std::signbit(a) != std::signbit(b) ? -chosen : chosen;
  });
  check<float, float, float>("max.ftz.f32",
                             [](float a, float b) { return greatest(flushed(a), flushed(b)); });
}

template <class T>
void check_comparisons(const std::string& type) {
  const auto any_nan = [](T a, T b) { return std::isnan(a) || std::isnan(b); };
  check<bool, T, T>("setp.eq." + type, [](T a, T b) { return a == b; });
  check<bool, T, T>("setp.ne." + type, [any_nan](T a, T b) { return !any_nan(a, b) && a != b; });
  check<bool, T, T>("setp.lt." + type, [](T a, T b) { return a < b; });
  check<bool, T, T>("setp.le." + type, [](T a, T b) { return a <= b; });
  check<bool, T, T>("setp.gt." + type, [](T a, T b) { return a > b; });
  check<bool, T, T>("setp.ge." + type, [](T a, T b) { return a >= b; });
  check<bool, T, T>("setp.equ." + type, [any_nan](T a, T b) { return any_nan(a, b) || a == b; });
  check<bool, T, T>("setp.neu." + type, [](T a, T b) { return a != b; });
  check<bool, T, T>("setp.ltu." + type, [](T a, T b) { return !(a >= b); });
  check<bool, T, T>("setp.leu." + type, [](T a, T b) { return !(a > b); });
  check<bool, T, T>("setp.gtu." + type, [](T a, T b) { return !(a <= b); });
  check<bool, T, T>("setp.geu." + type, [](T a, T b) { return !(a < b); });
  check<bool, T, T>("setp.num." + type, [any_nan](T a, T b) { return !any_nan(a, b); });
  check<bool, T, T>("setp.nan." + type, any_nan);
  check<bool, T>("testp.finite." + type, [](T a) { return std::isfinite(a); });
  check<bool, T>("testp.infinite." + type, [](T a) { return std::isinf(a); });
  check<bool, T>("testp.notanumber." + type, [](T a) { return std::isnan(a); });
  check<bool, T>("testp.normal." + type, [](T a) { return std::isnormal(a) || a == 0; });
  check<bool, T>("testp.subnormal." + type, [](T a) { return std::fpclassify(a) == FP_SUBNORMAL; });
}

TEST(FloatInstructions, Comparisons) {
  check_comparisons<float>("f32");
  check_comparisons<double>("f64");
}

// Approximate functions: against the function in double or better, with what CUDA promises.
struct Bound {
  double relative = 0, absolute = 0;
};
bool close(double expected, float found, Bound bound) {
  if (std::isnan(expected)) return std::isnan(found);
  const auto nearest = static_cast<float>(expected);
  if (std::isinf(nearest)) return found == nearest || std::fabs(found) > 3.39e38F;
  const double allowed = std::fabs(expected) * bound.relative + bound.absolute + 1.5e-45;
  return std::fabs(found - expected) <= allowed;
}

template <class F>
void check_approximate(const std::string& text, F exact, Bound bound,
                       float largest = std::numeric_limits<float>::max()) {
  const auto reference = [exact](float a) { return static_cast<float>(exact(double(a))); };
  check_with<float, float>(text, reference, [=](float, float found, float a) {
    if (std::fabs(a) > largest && std::isfinite(a)) return std::fabs(found) <= 1.0F;
    return close(exact(double(a)), found, bound);
  });
}

TEST(FloatInstructions, ApproximateFunctions) {
  const double two_ulp = 2.5e-7;
  check_approximate("ex2.approx.f32", [](double a) { return std::exp2(a); }, {two_ulp, 0});
  check_approximate("lg2.approx.f32", [](double a) { return std::log2(a); }, {two_ulp, 0});
  check_approximate("rcp.approx.f32", [](double a) { return 1 / a; }, {1.2e-7, 0});
  check_approximate("rsqrt.approx.f32", [](double a) { return 1 / std::sqrt(a); }, {1.2e-7, 0});
  check_approximate("sqrt.approx.f32", [](double a) { return std::sqrt(a); }, {1.2e-7, 0});
  check_approximate(
      "sin.approx.f32", [](double a) { return std::sin(a); }, {0, 1.5e-7}, 1e6F);
  check_approximate(
      "cos.approx.f32", [](double a) { return std::cos(a); }, {0, 1.5e-7}, 1e6F);
  check_approximate("tanh.approx.f32", [](double a) { return std::tanh(a); }, {4.8e-4, 0});
  check<float, float, float>("div.full.f32", [](float a, float b) { return a / b; });
  check<float, float, float>("div.approx.f32", [](float a, float b) { return a / b; });
  // The form in double keeps the upper half of the result.
  check_with<double, double>(
      "rcp.approx.ftz.f64", [](double a) { return 1 / a; },
      [](double expected, double found, double a) {
        if (std::isnan(expected)) return std::isnan(found);
        if (std::fpclassify(a) == FP_SUBNORMAL) return std::isinf(found);
        if (std::fpclassify(expected) == FP_SUBNORMAL) return found == 0;
        if (std::isinf(expected) || expected == 0) return found == expected;
        return std::fabs(found / expected - 1) < 1e-6 &&
               (std::bit_cast<u64>(found) & 0xffffffffU) == 0;
      });
}

// Dense, where programs use them.
TEST(FloatInstructions, ApproximateFunctionsStayWithinTwoUlp) {
  Device device(kernel_text(".param .u64 p_in, .param .u64 p_out",
                            R"(.reg .b64 p, q, o; .reg .b32 i, t; .reg .f32 x, y, z;
    mov.u32 i, %ctaid.x; mov.u32 t, %ntid.x; mul.lo.u32 i, i, t; mov.u32 t, %tid.x;
    add.u32 i, i, t; mul.wide.u32 o, i, 4; ld.param.u64 p, [p_in]; add.s64 p, p, o;
    mul.wide.u32 o, i, 8; ld.param.u64 q, [p_out]; add.s64 q, q, o;
    ld.global.f32 x, [p]; ex2.approx.ftz.f32 y, x; abs.f32 x, x; lg2.approx.ftz.f32 z, x;
    st.global.v2.f32 [q], {y, z}; ret;)"));
  const std::uint32_t count = 1 << 16;
  std::vector<float> in(count);
  for (std::uint32_t i = 0; i < count; ++i) in[i] = (float(i) - count / 2.0F) * 0.0019F + 0.0007F;
  const float* from = device.upload(in);
  auto* to = device.upload(std::vector<float>(2 * std::size_t{count}));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    ASSERT_EQ(device.launch(config, "k", {count / 256}, {256}, Arguments(from, to)).fault,
              Fault::none);
    double worst_exp = 0, worst_log = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const double e = std::exp2(double(in[i])), l = std::log2(std::fabs(double(in[i])));
      const auto ulp = [](double x) {
        return double(std::nextafter(std::fabs(float(x)), INFINITY)) - std::fabs(double(float(x)));
      };
      worst_exp = std::max(worst_exp, std::fabs(to[2 * i] - e) / ulp(e));
      worst_log = std::max(worst_log, std::fabs(to[2 * i + 1] - l) / ulp(l));
    }
    EXPECT_LE(worst_exp, 2.0);
    EXPECT_LE(worst_log, 2.0);
  }
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
