// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 against the list of all their numbers: a result is the one that is nearest.
#include <algorithm>

#include "instruction_case.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view half_ptx;
extern const std::string_view half_90_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

// Enough bits for every sum of a product here.
__extension__ using Wide = __float128;

struct F16 {
  static constexpr int mantissa = 10, bias = 15;
  static constexpr uint16_t one = 0x3c00;
  static constexpr const char* name = "f16";
  uint16_t raw;
};
struct Bf16 {
  static constexpr int mantissa = 7, bias = 127;
  static constexpr uint16_t one = 0x3f80;
  static constexpr const char* name = "bf16";
  uint16_t raw;
};
template <class H>
struct Pair {
  H low, high;
};

template <class H>
constexpr uint16_t infinity = (2 * H::bias + 1) << H::mantissa;
constexpr uint16_t nan_bits = 0x7fff, sign = 0x8000;

template <class H>
bool is_nan(H a) {
  return (a.raw & 0x7fff) > infinity<H>;
}
template <class H>
double value_of(H a) {
  const int magnitude = a.raw & 0x7fff;
  if (is_nan(a)) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = magnitude >> H::mantissa, fraction = magnitude & ((1 << H::mantissa) - 1);
  double value = exponent == 0
                     ? std::ldexp(fraction, 1 - H::bias - H::mantissa)
                     : std::ldexp(fraction + (1 << H::mantissa), exponent - H::bias - H::mantissa);
  if (magnitude == infinity<H>) value = std::numeric_limits<double>::infinity();
  return (a.raw & sign) != 0 ? -value : value;
}

// The neighbours of a positive number, `below` the nearest that is not above it.
template <class H>
uint16_t below(Wide positive) {
  int low = 0, high = infinity<H> - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<Wide>(value_of(H{static_cast<uint16_t>(middle)})) <= positive) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<uint16_t>(low);
}

enum class To { nearest, zero, down, up };

// The exact value is `sum` and, in the direction away from zero, `rest` more, which is less than
// what the last bit of `sum` stands for.
template <class H>
H rounded(Wide sum, bool negative, To direction = To::nearest, Wide rest = 0) {
  if (sum != sum) return {nan_bits};
  const uint16_t sign_bit = negative ? sign : 0;
  const Wide positive = negative ? -sum : sum;
  if (positive > 0 && positive - positive != 0) return {uint16_t(sign_bit | infinity<H>)};
  uint16_t low = below<H>(positive);
  if (value_of(H{low}) == positive) {
    if (rest == 0) return {uint16_t(sign_bit | low)};
    if (rest < 0) --low;
  }
  const Wide at_low = value_of(H{low});
  // Beyond the largest number, the next one would be a power of two.
  const uint16_t high = static_cast<uint16_t>(low + 1);
  const Wide at_high =
      high == infinity<H> ? Wide(std::ldexp(1.0, H::bias + 1)) : Wide(value_of(H{high}));
  bool away = false;
  if (direction == To::nearest) {
    const Wide to_low = positive - at_low, to_high = at_high - positive;
    const bool upper_half = rest > 0 || (rest == 0 && low % 2 == 1);
    away = to_high < to_low || (to_high == to_low && upper_half);
  } else if (direction != To::zero) {
    away = (direction == To::down) == negative;
  }
  return {uint16_t(sign_bit | (away ? high : low))};
}
template <class H>
H rounded(double exact, To direction = To::nearest) {
  return rounded<H>(exact, std::signbit(exact), direction);
}

template <class H>
H fma(H a, H b, H c, To direction = To::nearest) {
  const double x = value_of(a), y = value_of(b), z = value_of(c);
  const double product = x * y;
  if (product - product != 0 || z - z != 0) return rounded<H>(product + z, direction);
  const Wide sum = Wide(product) + Wide(z);
  const Wide part = sum - Wide(product);
  const Wide lost = (Wide(product) - (sum - part)) + (Wide(z) - part);
  if (sum == 0) return rounded<H>(product + z, direction);  // which has the sign
  return rounded<H>(sum, sum < 0, direction, sum < 0 ? -lost : lost);
}
template <class H>
H smaller(H a, H b) {
  if (is_nan(a)) return is_nan(b) ? H{nan_bits} : b;
  if (is_nan(b)) return a;
  if (value_of(a) == value_of(b)) return (a.raw & sign) != 0 ? a : b;
  return value_of(a) < value_of(b) ? a : b;
}
template <class H>
H negated(H a) {
  return {static_cast<uint16_t>(a.raw ^ sign)};
}
template <class H>
H larger(H a, H b) {
  if (is_nan(a) || is_nan(b)) return smaller(a, b);
  return negated(smaller(negated(a), negated(b)));
}
template <class H>
H saturated(H a) {
  if (is_nan(a) || !(value_of(a) > 0)) return {0};
  return value_of(a) > 1 ? H{H::one} : a;
}
template <class H>
H relu(H a) {
  return is_nan(a) ? a : (a.raw & sign) != 0 ? H{0} : a;
}
F16 flushed(F16 a) {
  return (a.raw & 0x7c00) == 0 ? F16{static_cast<uint16_t>(a.raw & sign)} : a;
}

template <class H>
std::string named(const std::string& opcode, const char* end = "") {
  return opcode + "." + H::name + end;
}

// The same for the numbers one by one and for both halves of pairs.
template <class H, class F>
void check_one(const std::string& opcode, F f) {
  check<H, H>(named<H>(opcode), f);
  check<Pair<H>, Pair<H>>(named<H>(opcode, "x2"), [f](Pair<H> a) {
    return Pair<H>{f(a.low), f(a.high)};
  });
}
template <class H, class F>
void check_two(const std::string& opcode, F f) {
  check<H, H, H>(named<H>(opcode), f);
  check<Pair<H>, Pair<H>, Pair<H>>(named<H>(opcode, "x2"), [f](Pair<H> a, Pair<H> b) {
    return Pair<H>{f(a.low, b.low), f(a.high, b.high)};
  });
}
template <class H, class F>
void check_three(const std::string& opcode, F f) {
  check<H, H, H, H>(named<H>(opcode), f);
  check<Pair<H>, Pair<H>, Pair<H>, Pair<H>>(
      named<H>(opcode, "x2"), [f](Pair<H> a, Pair<H> b, Pair<H> c) {
        return Pair<H>{f(a.low, b.low, c.low), f(a.high, b.high, c.high)};
      });
}

template <class H>
const std::vector<uint64_t>& edges() {
  static const std::vector<uint64_t> all = [] {
    std::vector<uint64_t> bits = {0,
                                  1,
                                  2,
                                  3,
                                  H::one,
                                  H::one + 1,
                                  H::one - 1,
                                  infinity<H> - 1,
                                  infinity<H>,
                                  nan_bits,
                                  1 << H::mantissa,
                                  (1 << H::mantissa) - 1,
                                  0x4248,
                                  0x4900,
                                  0x1234,
                                  0x5bff};
    const std::size_t count = bits.size();
    for (std::size_t i = 0; i < count; ++i) bits.push_back(bits[i] | sign);
    return bits;
  }();
  return all;
}
template <class H>
const std::vector<uint64_t>& pair_edges() {
  static const std::vector<uint64_t> all = [] {
    std::vector<uint64_t> bits;
    const auto& single = edges<H>();
    for (std::size_t i = 0; i < single.size(); ++i) {
      bits.push_back(single[i] | single[(i * 7 + 3) % single.size()] << 16U);
    }
    return bits;
  }();
  return all;
}

}  // namespace

template <>
const OperandKind& operand_kind<F16>() {
  static const OperandKind kind = {"b16", "b16", 2, false, false, false, &edges<F16>()};
  return kind;
}
template <>
const OperandKind& operand_kind<Bf16>() {
  static const OperandKind kind = {"b16", "b16", 2, false, false, false, &edges<Bf16>()};
  return kind;
}
template <>
const OperandKind& operand_kind<Pair<F16>>() {
  static const OperandKind kind = {"b32", "b32", 4, false, false, false, &pair_edges<F16>()};
  return kind;
}
template <>
const OperandKind& operand_kind<Pair<Bf16>>() {
  static const OperandKind kind = {"b32", "b32", 4, false, false, false, &pair_edges<Bf16>()};
  return kind;
}

namespace {

template <class H>
void check_arithmetic() {
  const auto add = [](H a, H b) { return rounded<H>(value_of(a) + value_of(b)); };
  const auto sub = [](H a, H b) { return rounded<H>(value_of(a) - value_of(b)); };
  const auto mul = [](H a, H b) { return rounded<H>(value_of(a) * value_of(b)); };
  check_two<H>("add", add);
  check_two<H>("add.rn", add);
  check_two<H>("sub", sub);
  check_two<H>("mul", mul);
  check_three<H>("fma.rn", [](H a, H b, H c) { return fma(a, b, c); });
  check_three<H>("fma.rn.relu", [](H a, H b, H c) { return relu(fma(a, b, c)); });
  // A GPU makes every NaN the same one here too (H100, with random_ptx.py).
  check_one<H>("neg", [](H a) { return is_nan(a) ? H{nan_bits} : negated(a); });
  check_one<H>("abs", [](H a) {
    return is_nan(a) ? H{nan_bits} : H{static_cast<uint16_t>(a.raw & 0x7fff)};
  });
  check_two<H>("min", smaller<H>);
  check_two<H>("max", larger<H>);
  check_two<H>("max.NaN",
               [](H a, H b) { return is_nan(a) || is_nan(b) ? H{nan_bits} : larger(a, b); });
  check_two<H>("min.xorsign.abs", [](H a, H b) {
    const auto magnitude = [](H x) { return H{static_cast<uint16_t>(x.raw & 0x7fff)}; };
    const auto sign_of = [](H x) { return is_nan(x) ? 0 : x.raw & sign; };  // a NaN has none
    const H chosen = smaller(magnitude(a), magnitude(b));
    return is_nan(chosen) ? H{nan_bits}
                          : H{static_cast<uint16_t>(chosen.raw | (sign_of(a) ^ sign_of(b)))};
  });
}

TEST(HalfInstructions, Arithmetic) {
  check_arithmetic<F16>();
  check_arithmetic<Bf16>();
  check_three<Bf16>("fma.rz", [](Bf16 a, Bf16 b, Bf16 c) { return fma(a, b, c, To::zero); });
  check_three<Bf16>("fma.rp", [](Bf16 a, Bf16 b, Bf16 c) { return fma(a, b, c, To::up); });
}

TEST(HalfInstructions, FlushAndSaturate) {
  check_two<F16>("add.ftz", [](F16 a, F16 b) {
    return flushed(rounded<F16>(value_of(flushed(a)) + value_of(flushed(b))));
  });
  check_two<F16>("mul.ftz.sat", [](F16 a, F16 b) {
    return flushed(saturated(rounded<F16>(value_of(flushed(a)) * value_of(flushed(b)))));
  });
  check_two<F16>("sub.sat",
                 [](F16 a, F16 b) { return saturated(rounded<F16>(value_of(a) - value_of(b))); });
  check_three<F16>("fma.rn.sat", [](F16 a, F16 b, F16 c) { return saturated(fma(a, b, c)); });
  check_one<F16>("neg.ftz", [](F16 a) { return is_nan(a) ? F16{nan_bits} : negated(flushed(a)); });
  check_two<F16>("min.ftz", [](F16 a, F16 b) { return smaller(flushed(a), flushed(b)); });
}

template <class H, To Direction>
void check_rounding(const std::string& mode) {
  const std::string begin = "cvt." + mode + "." + H::name;
  const auto of = [](double a) { return rounded<H>(a, Direction); };
  check<H, float>(begin + ".f32", [of](float a) { return of(a); });
  check<H, double>(begin + ".f64", of);
  check<H, std::int32_t>(begin + ".s32", [of](std::int32_t a) { return of(a); });
  check<H, uint32_t>(begin + ".u32", [of](uint32_t a) { return of(a); });
  check<H, std::int16_t>(begin + ".s16", [of](std::int16_t a) { return of(a); });
  if constexpr (std::is_same_v<H, F16>) {
    check<H, std::int16_t>(begin + ".s8", [of](std::int16_t a) { return of(std::int8_t(a)); });
  }
  check<H, std::int64_t>(begin + ".s64",
                         [](std::int64_t a) { return rounded<H>(Wide(a), a < 0, Direction); });
  check<H, uint64_t>(begin + ".u64",
                     [](uint64_t a) { return rounded<H>(Wide(a), false, Direction); });
}
template <class H>
void check_conversions() {
  check_rounding<H, To::nearest>("rn");
  check_rounding<H, To::zero>("rz");
  check_rounding<H, To::down>("rm");
  check_rounding<H, To::up>("rp");
  check<float, H>(named<H>("cvt.f32"), [](H a) { return value_of(a); });
  check<double, H>(named<H>("cvt.f64"), [](H a) { return value_of(a); });
  check<std::int32_t, H>(named<H>("cvt.rni.s32"), [](H a) {
    const double whole = std::nearbyint(value_of(a));
    if (is_nan(a)) return std::int32_t{0};
    return static_cast<std::int32_t>(std::clamp(whole, -2147483648.0, 2147483647.0));
  });
  check<uint16_t, H>(named<H>("cvt.rzi.u16"), [](H a) {
    const double whole = std::trunc(value_of(a));
    return static_cast<uint16_t>(is_nan(a) ? 0 : std::clamp(whole, 0.0, 65535.0));
  });
  check<H, H>(named<H>(named<H>("cvt.rmi")),
              [](H a) { return rounded<H>(std::floor(value_of(a))); });
  check<H, float>(named<H>("cvt.rn.relu", ".f32"), [](float a) { return relu(rounded<H>(a)); });
  check<Pair<H>, float, float>(named<H>("cvt.rn", "x2.f32"), [](float a, float b) {
    return Pair<H>{rounded<H>(b), rounded<H>(a)};
  });
}

TEST(HalfInstructions, Conversions) {
  check_conversions<F16>();
  check_conversions<Bf16>();
  check<F16, float>("cvt.rn.sat.f16.f32", [](float a) { return saturated(rounded<F16>(a)); });
  check<F16, Bf16>("cvt.rn.f16.bf16", [](Bf16 a) { return rounded<F16>(value_of(a)); });
}

template <class H>
void check_comparisons() {
  const auto lt = [](H a, H b) { return value_of(a) < value_of(b); };
  const auto geu = [](H a, H b) { return !(value_of(a) < value_of(b)); };
  check<bool, H, H>(named<H>("setp.lt"), lt);
  check<bool, H, H>(named<H>("setp.geu"), geu);
  check<uint32_t, H, H>(named<H>("set.lt.u32"), [lt](H a, H b) { return lt(a, b) ? ~0U : 0; });
  check<uint16_t, H, H>(named<H>("set.geu.u16"),
                        [geu](H a, H b) { return uint16_t(geu(a, b) ? 0xffff : 0); });
  check<H, H, H>(named<H>(named<H>("set.lt")),
                 [lt](H a, H b) { return H{lt(a, b) ? H::one : uint16_t{0}}; });
  check<H, float, float>(named<H>("set.le", ".f32"),
                         [](float a, float b) { return H{a <= b ? H::one : uint16_t{0}}; });
  check<Pair<H>, Pair<H>, Pair<H>>(
      named<H>(named<H>("set.lt", "x2"), "x2"), [lt](Pair<H> a, Pair<H> b) {
        const auto one = [lt](H x, H y) { return H{lt(x, y) ? H::one : uint16_t{0}}; };
        return Pair<H>{one(a.low, b.low), one(a.high, b.high)};
      });
  check<uint32_t, Pair<H>, Pair<H>>(named<H>("set.geu.u32", "x2"), [geu](Pair<H> a, Pair<H> b) {
    return (geu(a.low, b.low) ? 0xffffU : 0) | (geu(a.high, b.high) ? 0xffff0000U : 0);
  });
  check<uint32_t, Pair<H>, Pair<H>, bool>(
      "{ .reg .pred v, w; setp.lt.or." + std::string(H::name) +
          "x2 v|w, %0, %1, !%2; selp.u32 %d, 1, 0, v; @w add.u32 %d, %d, 2; }",
      [lt](Pair<H> a, Pair<H> b, bool c) {
        return (lt(a.low, b.low) || !c ? 1U : 0) + (lt(a.high, b.high) || !c ? 2U : 0);
      });
}

TEST(HalfInstructions, Comparisons) {
  check_comparisons<F16>();
  check_comparisons<Bf16>();
  check<bool, F16, F16>("setp.eq.ftz.f16",
                        [](F16 a, F16 b) { return value_of(flushed(a)) == value_of(flushed(b)); });
}

// The instructions that ptxas refuses as well.
TEST(HalfInstructions, InstructionsThatPtxDoesNotHaveAreRefused) {
  for (const char* instruction :
       {"add.rz.f16 h, h, h;", "add.sat.bf16 h, h, h;", "fma.f16 h, h, h, h;",
        "fma.rn.sat.relu.f16 h, h, h, h;", "mad.f16 h, h, h, h;", "div.f16 h, h, h;",
        "add.f16 h, h, 0x3c00;", "ex2.approx.ftz.f16 h, h;", "ex2.approx.bf16 h, h;",
        "tanh.approx.ftz.f16 h, h;", "setp.lt.f16 p|q, h, h;", "setp.lt.ftz.bf16 p, h, h;",
        "set.lt.f32.f16 f, h, h;", "set.lt.u16.f32 h, f, f;", "cvt.f16.f32 h, f;",
        "cvt.rn.f32.f16 f, h;", "cvt.rn.f16.f16 h, h;", "cvt.rni.f16.f32 h, f;",
        "copysign.f16 h, h, h;"}) {
    EXPECT_THROW(compile(kernel_text(".param .u32 n", std::string(".reg .b16 h; .reg .f32 f; "
                                                                  ".reg .pred p, q; ") +
                                                          instruction + "ret;")),
                 ptx::SyntaxError)
        << instruction;
  }
}

TEST(HalfInstructions, InstructionsBeyondTheTargetAreRefused) {
  std::string text = kernel_text(".param .u32 n", ".reg .b16 h; add.bf16 h, h, h; ret;");
  EXPECT_NO_THROW(compile(text));
  text.replace(text.find("sm_90"), 5, "sm_89");
  try {
    compile(text);
    FAIL() << "it was taken";
  } catch (const ptx::SyntaxError& error) {
    EXPECT_NE(std::string(error.what()).find("add.bf16 needs .target sm_90 or newer"),
              std::string::npos)
        << error.what();
  }
}

// nvcc's PTX for the functions of cuda_fp16.h and cuda_bf16.h is taken, and runs.
TEST(HalfInstructions, KernelsOfNvccCompute) {
  for (const std::string_view ptx : {fixtures::half_ptx, fixtures::half_90_ptx}) {
    Device device{std::string(ptx)};
    constexpr int count = 1000;
    std::mt19937 random(7);
    F16* values[4];
    for (F16*& column : values) {
      column = static_cast<F16*>(device.allocate(count * sizeof(F16)));
      for (int i = 0; i < count; ++i) column[i].raw = static_cast<uint16_t>(random());
    }
    for (const Config& config : all_configs()) {
      const Outcome outcome =
          device.launch(config, "multiply_add", {(count + 127) / 128}, {128},
                        Arguments(values[0], values[1], values[2], values[3], count));
      ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(values[3][i].raw, fma(values[0][i], values[1][i], values[2][i]).raw) << i;
      }
    }
  }
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
