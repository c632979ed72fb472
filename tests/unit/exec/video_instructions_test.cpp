// SPDX-License-Identifier: Apache-2.0
// Video instructions against the pseudo-code of the PTX ISA, in integers that are wide enough.
#include <algorithm>
#include <array>

#include "instruction_case.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

constexpr std::array<const char*, 7> selectors = {"", ".b0", ".h1", ".b3", ".h0", ".b1", ".b2"};

// Bits of a register: where they begin and how many there are.
struct Field {
  unsigned at = 0, bits = 32;
};
Field field_of(const std::string& selector) {
  if (selector.empty()) return {};
  const unsigned bits = selector[1] == 'b' ? 8 : 16;
  return {static_cast<unsigned>(selector[2] - '0') * bits, bits};
}
s64 low_bits(u64 value, unsigned bits, bool is_signed) {
  const unsigned unused = 64 - bits;
  return is_signed ? static_cast<s64>(value << unused) >> unused
                   : static_cast<s64>(value << unused >> unused);
}
s64 read(u64 value, Field field, bool is_signed) {
  return low_bits(value >> field.at, field.bits, is_signed);
}
s64 saturated(s64 value, unsigned bits, bool is_signed) {
  const s64 range = s64{1} << bits;
  return is_signed ? std::clamp(value, -range / 2, range / 2 - 1)
                   : std::clamp(value, s64{0}, range - 1);
}
u32 merged(s64 value, u32 into, Field field) {
  const u64 mask = ((u64{1} << field.bits) - 1) << field.at;
  return static_cast<u32>((into & ~mask) | (static_cast<u64>(value) << field.at & mask));
}

struct Operation {
  std::string name, mode;
  s64 (*calculate)(s64 a, s64 b);
};
s64 sum(s64 a, s64 b) {
  return a + b;
}
s64 difference(s64 a, s64 b) {
  return a - b;
}
s64 distance(s64 a, s64 b) {
  return a > b ? a - b : b - a;
}
s64 lesser(s64 a, s64 b) {
  return std::min(a, b);
}
s64 greater(s64 a, s64 b) {
  return std::max(a, b);
}
s64 average(s64 a, s64 b) {
  // Rounded to the nearest, halves away from zero.
  const s64 twice = a + b;
  return twice % 2 == 0 ? twice / 2 : twice < 0 ? (twice - 1) / 2 : (twice + 1) / 2;
}
s64 left(s64 a, s64 by) {
  return low_bits(static_cast<u64>(a) << by, 34, true);
}
s64 left_clamp(s64 a, s64 by) {
  return left(a, std::min<s64>(by, 32));
}
s64 left_wrap(s64 a, s64 by) {
  return left(a, by % 32);
}
s64 right_clamp(s64 a, s64 by) {
  return a >> std::min<s64>(by, 32);
}
s64 right_wrap(s64 a, s64 by) {
  return a >> by % 32;
}
const std::vector<Operation> plain = {
    {"vadd", "", sum},    {"vsub", "", difference}, {"vabsdiff", "", distance},
    {"vmin", "", lesser}, {"vmax", "", greater},
};
const std::vector<Operation> shifts = {
    {"vshl", ".clamp", left_clamp},
    {"vshl", ".wrap", left_wrap},
    {"vshr", ".clamp", right_clamp},
    {"vshr", ".wrap", right_wrap},
};
const std::vector<Operation> comparisons = {
    {"vset", ".eq", [](s64 a, s64 b) { return s64{a == b}; }},
    {"vset", ".ne", [](s64 a, s64 b) { return s64{a != b}; }},
    {"vset", ".lt", [](s64 a, s64 b) { return s64{a < b}; }},
    {"vset", ".le", [](s64 a, s64 b) { return s64{a <= b}; }},
    {"vset", ".gt", [](s64 a, s64 b) { return s64{a > b}; }},
    {"vset", ".ge", [](s64 a, s64 b) { return s64{a >= b}; }},
};

// The signs of d, a and b. vset has no type of d, which has no sign then.
struct Signs {
  bool d, a, b;
};
std::string types(const Operation& operation, Signs signs) {
  const auto name = [](bool is_signed) { return is_signed ? ".s32" : ".u32"; };
  return (operation.name.starts_with("vset") ? "" : name(signs.d)) + std::string(name(signs.a)) +
         name(signs.b);
}
// All that an operation has.
std::vector<Signs> all_signs(const Operation& operation) {
  std::vector<Signs> all;
  for (unsigned i = 0; i < 8; ++i) {
    const Signs signs{(i & 1) != 0, (i & 2) != 0, (i & 4) != 0};
    const bool exists = operation.name.starts_with("vset")  ? !signs.d
                        : operation.name.starts_with("vsh") ? !signs.b
                                                            : true;
    if (exists) all.push_back(signs);
  }
  return all;
}

void check_words(const std::string& text, const std::function<u32(u32 a, u32 b, u32 c)>& expected) {
  const OperandKind& word = operand_kind<u32>();
  check_case({text, word, {word, word, word}, [expected](Inputs in) -> u64 {
                return expected(static_cast<u32>(in[0]), static_cast<u32>(in[1]),
                                static_cast<u32>(in[2]));
              }});
}

void check_scalar(const Operation& operation, Signs signs, bool saturates,
                  const std::string& second, const std::string& d, const std::string& a,
                  const std::string& b) {
  const std::string text = operation.name + types(operation, signs) + (saturates ? ".sat" : "") +
                           operation.mode + second + " %d" + d + ", %0" + a + ", %1" + b + ", %2";
  check_words(text, [=](u32 x, u32 y, u32 c) {
    const Field to = field_of(d);
    s64 value = operation.calculate(read(x, field_of(a), signs.a), read(y, field_of(b), signs.b));
    if (saturates) value = saturated(value, to.bits, signs.d);
    const s64 other = read(c, {}, signs.d);
    if (second == ".add") value += other;
    if (second == ".min") value = std::min(value, other);
    if (second == ".max") value = std::max(value, other);
    return merged(value, c, to);
  });
}

// Each operation and each combination of types, with changing selectors and second operations.
void check_scalars(const std::vector<Operation>& operations, bool may_saturate) {
  constexpr std::array<const char*, 5> seconds = {".add", "", ".min", "", ".max"};
  std::size_t turn = 0;
  for (const Operation& operation : operations) {
    for (const Signs signs : all_signs(operation)) {
      for (const bool saturates : {false, true}) {
        if (saturates && !may_saturate) continue;
        const std::string second = seconds[turn % seconds.size()];
        const char* const d = second.empty() ? selectors[turn / 2 % selectors.size()] : "";
        check_scalar(operation, signs, saturates, second, d, selectors[turn % selectors.size()],
                     selectors[turn / 3 % selectors.size()]);
        ++turn;
      }
    }
  }
}

TEST(VideoInstructions, Arithmetic) {
  check_scalars(plain, true);
}

TEST(VideoInstructions, Shifts) {
  check_scalars(shifts, true);
}

TEST(VideoInstructions, Comparisons) {
  check_scalars(comparisons, false);
}

TEST(VideoInstructions, EachPartOfARegisterIsSelected) {
  for (const char* const part : selectors) {
    check_scalar(plain[0], {true, true, false}, false, "", part, part, "");
    check_scalar(plain[1], {false, false, true}, true, "", part, "", part);
  }
  // Without a third source; and with constants.
  check<u32, u32, u32>("vsub.u32.u32.u32 %d, %0, %1", [](u32 a, u32 b) { return a - b; });
  check<u32, u32>("vadd.s32.s32.s32 %d, %0.b1, -7", [](u32 a) {
    return static_cast<u32>(read(a, {8, 8}, true) - 7);
  });
  check<u32, u32>("vabsdiff.u32.u32.u32.add %d, 5, %0.b0, 9",
                  [](u32 a) { return static_cast<u32>(distance(5, a & 255) + 9); });
  // A part is written, and the rest stays; what was there before is not forgotten.
  check<u32, u32>("{ mov.u32 %d, 0x11223344; vadd.u32.u32.u32 %d.b1, %0, 1, %d; }", [](u32 a) {
    return merged(s64{a} + 1, 0x11223344, {8, 8});
  });
}

TEST(VideoInstructions, MultiplyAdd) {
  struct Form {
    std::string name, a, b;
    Signs signs;
    int product, other, more;  // the factors of a*b and c, and what is added
    unsigned shift;
    bool saturates;
  };
  const std::vector<Form> forms = {
      {"u32.u32.u32", "", "", {}, 1, 1, 0, 0, false},
      {"s32.s32.s32", "", "", {true, true, true}, 1, 1, 0, 0, false},
      {"u32.u32.u32.sat", "", "", {}, 1, 1, 0, 0, true},
      {"u32.u32.u32.sat.shr15", "", ".h0", {}, 1, 1, 0, 15, true},
      {"u32.u32.u32.shr15", ".h0", ".h1", {}, 1, 1, 0, 15, false},
      {"u32.u32.u32.po.shr7", ".b0", ".b2", {}, 1, 1, 1, 7, false},
      {"u32.u32.u32.po.sat", "", ".b3", {}, 1, 1, 1, 0, true},
      {"s32.s32.u32.sat.shr7", "", "", {true, true, false}, 1, 1, 0, 7, true},
      {"s32.u32.s32.sat", ".b1", "", {true, false, true}, 1, 1, 0, 0, true},
      {"s32.s32.s32.po.shr15", "", "", {true, true, true}, 1, 1, 1, 15, false},
      {"s32.s32.s32.sat", "-", "", {true, true, true}, -1, 1, 0, 0, true},
      {"s32.u32.u32.sat.shr7", ".h0", "-", {false, false, false}, -1, 1, 0, 7, true},
      {"s32.s32.s32.sat.shr15", "-", "-", {true, true, true}, 1, 1, 0, 15, true},
      {"u32.s32.s32.shr7", "", "", {false, true, true}, 1, -1, 0, 7, false},
      {"u32.u32.u32.sat", ".b0", "", {}, 1, -1, 0, 0, true},
  };
  for (const Form& form : forms) {
    const auto source = [](const std::string& how, const std::string& name) {
      return how == "-" ? "-" + name : name + how;
    };
    const auto part = [](const std::string& how) { return how == "-" ? "" : how; };
    const bool is_signed = form.signs.a || form.signs.b || form.product < 0 || form.other < 0;
    check_words("vmad." + form.name + " %d, " + source(form.a, "%0") + ", " + source(form.b, "%1") +
                    (form.other < 0 ? ", -%2" : ", %2"),
                [=](u32 a, u32 b, u32 c) {
                  __extension__ using Wide = __int128;
                  Wide value = Wide{read(a, field_of(part(form.a)), form.signs.a)} *
                                   read(b, field_of(part(form.b)), form.signs.b) * form.product +
                               Wide{read(c, {}, is_signed)} * form.other + form.more;
                  value >>= form.shift;
                  if (form.saturates) {
                    const Wide least = is_signed ? -(Wide{1} << 31) : 0;
                    value = std::clamp(value, least, least + (Wide{1} << 32) - 1);
                  }
                  return static_cast<u32>(value);
                });
  }
}

// "h20": the number of the part for each place, the lowest first.
std::vector<unsigned> places(const std::string& selector) {
  std::vector<unsigned> numbers;
  for (std::size_t i = selector.size() - 1; i > 0; --i) {
    numbers.push_back(static_cast<unsigned>(selector[i] - '0'));
  }
  return numbers;
}

struct Selectors {
  std::string d, a, b;  // empty: not written
};

void check_parallel(const Operation& operation, unsigned parts, Signs signs, const std::string& how,
                    const Selectors& chosen) {
  const auto written = [](const std::string& selector) {
    return selector.empty() ? "" : "." + selector;
  };
  const std::string text = operation.name + std::to_string(parts) + types(operation, signs) +
                           operation.mode + how + " %d" + written(chosen.d) + ", %0" +
                           written(chosen.a) + ", %1" + written(chosen.b) + ", %2";
  const auto or_else = [](const std::string& selector, const std::string& otherwise) {
    return places(selector.empty() ? otherwise : selector);
  };
  const std::string low = parts == 2 ? "h10" : "b3210", high = parts == 2 ? "h32" : "b7654";
  const auto targets = or_else(chosen.d, low), as = or_else(chosen.a, low),
             bs = or_else(chosen.b, high);
  check_words(text, [=](u32 a, u32 b, u32 c) {
    const u64 pool = u64{b} << 32 | a;
    const unsigned bits = 32 / parts;
    u32 result = c;
    for (const unsigned place : targets) {
      s64 value = operation.calculate(read(pool, {as[place] * bits, bits}, signs.a),
                                      read(pool, {bs[place] * bits, bits}, signs.b));
      if (how == ".sat") value = saturated(value, bits, signs.d);
      result = how == ".add" ? static_cast<u32>(result + value)
                             : merged(value, result, {place * bits, bits});
    }
    return result;
  });
}

void check_parallels(const std::vector<Operation>& operations, unsigned parts, bool may_saturate,
                     const std::vector<Selectors>& chosen) {
  constexpr std::array<const char*, 3> hows = {"", ".add", ".sat"};
  std::size_t turn = 0;
  for (const Operation& operation : operations) {
    for (const Signs signs : all_signs(operation)) {
      const char* const how = hows[turn % (may_saturate ? 3 : 2)];
      check_parallel(operation, parts, signs, how, chosen[turn / 2 % chosen.size()]);
      ++turn;
    }
  }
}

TEST(VideoInstructions, HalvesInParallel) {
  std::vector<Operation> operations = plain;
  operations.push_back({"vavrg", "", average});
  const std::vector<Selectors> chosen = {
      {}, {"h1", "", ""}, {"", "h03", "h21"}, {"h0", "h33", ""}, {"h10", "", "h00"}};
  check_parallels(operations, 2, true, chosen);
  check_parallels(comparisons, 2, false, chosen);
}

TEST(VideoInstructions, BytesInParallel) {
  std::vector<Operation> operations = plain;
  operations.push_back({"vavrg", "", average});
  const std::vector<Selectors> chosen = {
      {}, {"b0", "", ""}, {"b31", "b7013", ""}, {"b210", "", "b0000"}, {"", "b4567", "b2222"}};
  check_parallels(operations, 4, true, chosen);
  check_parallels(comparisons, 4, false, chosen);
}

TEST(VideoInstructions, InstructionsThatDoNotExistAreRefused) {
  for (const char* const line : {"vadd.u32.u32 r, r, r",
                                 "vadd.u32.s16.u32 r, r, r",
                                 "vadd.u32.u32.u32.and r, r, r, r",
                                 "vadd.u32.u32.u32.add r, r, r",
                                 "vadd.u32.u32.u32.add r.b0, r, r, r",
                                 "vadd.u32.u32.u32 r.b0, r, r",
                                 "vadd.u32.u32.u32 r.b0, r, r, r.b0",
                                 "vadd.u32.u32.u32 r, r.b4, r",
                                 "vadd.u32.u32.u32 r, r.h10, r",
                                 "vadd.u32.u32.u32 r, r.c0, r",
                                 "vadd.u32.u32.u32 r, %laneid, r",
                                 "vadd.u32.u32.u32 r, 1.5, r",
                                 "vadd.u32.u32.u32 _, r, r",
                                 "vadd.u32.u32.u32 r, h, r",
                                 "vadd.u32.u32.u32 r, -r, r",
                                 "vshl.u32.u32.u32 r, r, r",
                                 "vshl.u32.u32.s32.wrap r, r, r",
                                 "vset.u32.u32 r, r, r",
                                 "vset.u32.u32.lo r, r, r",
                                 "vset.u32.u32.lt.sat r, r, r",
                                 "vset.u32.u32.u32.lt r, r, r",
                                 "vmad.u32.u32.u32 r.b0, r, r, r",
                                 "vmad.u32.u32.u32 r, -r, r, -r",
                                 "vmad.u32.u32.u32.po r, r, r, -r",
                                 "vmad.u32.u32.u32.shr8 r, r, r, r",
                                 "vmad.u32.u32.u32 r, r, r",
                                 "vadd2.u32.u32.u32 r, r, r",
                                 "vadd2.u32.u32.u32.sat.add r, r, r, r",
                                 "vadd2.u32.u32.u32.min r, r, r, r",
                                 "vadd2.u32.u32.u32 r.h01, r, r, r",
                                 "vadd2.u32.u32.u32 r.h2, r, r, r",
                                 "vadd2.u32.u32.u32 r, r.h2, r, r",
                                 "vadd2.u32.u32.u32 r, r.b10, r, r",
                                 "vadd2.u32.u32.u32 r, r, 5, r",
                                 "vadd2.u32.u32.u32 r, r.h40, r, r",
                                 "vadd4.u32.u32.u32 r.b11, r, r, r",
                                 "vadd4.u32.u32.u32 r, r.b3218, r, r",
                                 "vavrg.u32.u32.u32 r, r, r",
                                 "vshl2.u32.u32.u32.wrap r, r, r, r",
                                 "add.u32 r.b0, r, r",
                                 "add.u32 r, r, -r"}) {
    SCOPED_TRACE(line);
    const std::string body = ".reg .b32 r; .reg .b16 h; mov.u32 r, 0; mov.u16 h, 0; ";
    EXPECT_THROW(Device(kernel_text("", body + line + "; ret;")), ptx::SyntaxError);
  }
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
