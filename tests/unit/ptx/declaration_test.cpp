// SPDX-License-Identifier: Apache-2.0
// Variables of modules and functions: spaces, types, sizes, alignments, initial values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx_testing.hpp"

namespace ctxbroker::software::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Variable variable_of(const std::string& declaration) {
  return parse(module_text(declaration)).variables.at(0);
}

std::vector<std::uint64_t> integers_of(const Variable& variable) {
  std::vector<std::uint64_t> integers;
  for (const Operand& value : variable.initial) {
    EXPECT_EQ(value.kind, Operand::Kind::integer);
    integers.push_back(value.integer);
  }
  return integers;
}

TEST(Module, HasVersionAndTarget) {
  const Module module = parse(".version 9.0\n.target sm_90a, debug, texmode_independent\n");
  EXPECT_EQ(module.version, "9.0");
  EXPECT_EQ(module.target, "sm_90a");
  EXPECT_EQ(module.address_size, 64U);
}

TEST(Module, TextMayEndInZeros) {
  EXPECT_EQ(parse(std::string_view(".version 9.0 .target sm_75\n\0\0", 29)).target, "sm_75");
}

TEST(Module, SkipsCommentsAndDebugInformation) {
  const Module module = parse(
      "// head\n.version 8.0 /* and\n more */ .target sm_75\n.file 1 \"a b.cu\", 12, 34\n"
      "# 1 \"a.cu\"\n@@DWARF .byte 0x01\n"
      ".section .debug_str\n{\n$L__info_string0:\n.b8 1,2\n.b64 $L__tmp+4\n.b32 .debug_abbrev\n}\n"
      ".global .u32 g;\n.pragma \"x\", \"y\";\n");
  EXPECT_EQ(module.variables.size(), 1U);
  EXPECT_EQ(module.variables[0].line, 14U);
}

TEST(Variable, ScalarHasItsTypesAlignment) {
  const Variable variable = variable_of(".global .f64 x;");
  EXPECT_EQ(variable.name, "x");
  EXPECT_EQ(variable.space, Space::global);
  EXPECT_EQ(variable.type, Type::f64);
  EXPECT_EQ(variable.alignment, 8U);
  EXPECT_EQ(variable.size_bytes(), 8U);
  EXPECT_FALSE(variable.is_array);
}

TEST(Variable, SizesOfAllTypes) {
  const std::pair<const char*, unsigned> sizes[] = {
      {"b8", 1},  {"u8", 1},  {"s8", 1},    {"b16", 2},  {"u16", 2},   {"s16", 2}, {"f16", 2},
      {"b32", 4}, {"u32", 4}, {"s32", 4},   {"f32", 4},  {"f16x2", 4}, {"b64", 8}, {"u64", 8},
      {"s64", 8}, {"f64", 8}, {"b128", 16}, {"bf16", 2}, {"bf16x2", 4}};
  for (const auto& [type, size] : sizes) {
    EXPECT_EQ(variable_of(std::string(".global .") + type + " x;").size_bytes(), size) << type;
  }
}

TEST(Variable, VectorsCountInSizeAndAlignment) {
  const Variable variable = variable_of(".const .v4 .f32 x[3];");
  EXPECT_EQ(variable.space, Space::constant);
  EXPECT_EQ(variable.vector, 4U);
  EXPECT_EQ(variable.alignment, 16U);
  EXPECT_EQ(variable.size_bytes(), 48U);
}

TEST(Variable, AlignmentIsAsWritten) {
  EXPECT_EQ(variable_of(".visible .global .align 16 .b8 x[40];").alignment, 16U);
}

TEST(Variable, DimensionsMultiply) {
  const Variable variable = variable_of(".shared .align 4 .b8 tile[2][3][5*2-1];");
  EXPECT_TRUE(variable.is_array);
  EXPECT_EQ(variable.count, 54U);
}

TEST(Variable, DynamicSharedMemory) {
  const Variable variable = variable_of(".extern .shared .align 16 .b8 dyn[];");
  EXPECT_TRUE(variable.is_extern);
  EXPECT_TRUE(variable.is_array);
  EXPECT_EQ(variable.count, 0U);
  EXPECT_EQ(variable.size_bytes(), 0U);
}

TEST(Variable, SeveralNamesInOneDeclaration) {
  const Module module = parse(module_text(".global .u32 a, b[2], c = 7;"));
  ASSERT_EQ(module.variables.size(), 3U);
  EXPECT_EQ(module.variables[1].count, 2U);
  EXPECT_THAT(integers_of(module.variables[2]), ElementsAre(7U));
}

TEST(Variable, ADefinitionReplacesAnExternDeclaration) {
  const Module module =
      parse(module_text(".extern .global .u32 a; .global .u32 a = 3; .extern .global .u32 a;"));
  ASSERT_EQ(module.variables.size(), 1U);
  EXPECT_FALSE(module.variables[0].is_extern);
  EXPECT_THAT(integers_of(module.variables[0]), ElementsAre(3U));
}

TEST(Variable, AttributesAndBanks) {
  EXPECT_EQ(variable_of(".global .attribute(.managed) .align 4 .u32 m = 4;").name, "m");
  EXPECT_EQ(variable_of(".global .attribute(.unified(1, 2)) .u32 m;").name, "m");
  EXPECT_EQ(variable_of(".const[2] .u32 m;").name, "m");
}

TEST(Initialiser, IntegersInAllBases) {
  EXPECT_THAT(integers_of(variable_of(".global .u64 x[6] = {12, 0x1F, 017, 0b101, 9U, 0};")),
              ElementsAre(12U, 31U, 15U, 5U, 9U, 0U));
}

TEST(Initialiser, SignedNumbersAreTwosComplement) {
  EXPECT_THAT(integers_of(variable_of(".global .s32 x[2] = {-1, -9223372036854775808};")),
              ElementsAre(~std::uint64_t{0}, std::uint64_t{1} << 63));
}

TEST(Initialiser, FewerValuesThanElementsAreLeftOut) {
  const Variable variable = variable_of(".global .align 1 .b8 text[6] = {104, 105};");
  EXPECT_EQ(variable.count, 6U);
  EXPECT_THAT(integers_of(variable), ElementsAre(104U, 105U));
}

TEST(Initialiser, ShortRowsAreFilledUp) {
  EXPECT_THAT(integers_of(variable_of(".global .u32 x[3][3] = {{1, 2}, {}, {7, 8, 9}};")),
              ElementsAre(1U, 2U, 0U, 0U, 0U, 0U, 7U, 8U, 9U));
  EXPECT_THAT(integers_of(variable_of(".global .u32 x[2][2][2] = {{{1}, {2}}, {{3}}};")),
              ElementsAre(1U, 0U, 2U, 0U, 3U));
  EXPECT_THAT(integers_of(variable_of(".global .v2 .u32 x[2] = {{1}, {2, 3}};")),
              ElementsAre(1U, 0U, 2U, 3U));
}

TEST(Initialiser, OpenArraysGetTheirCountFromTheInitialiser) {
  EXPECT_EQ(variable_of(".global .u32 x[] = {1, 2, 3};").count, 3U);
  EXPECT_EQ(variable_of(".global .u32 x[][2] = {{1}, {2, 3}};").count, 4U);
  EXPECT_EQ(variable_of(".global .u32 x[][2] = {1, 2, 3};").count, 4U);
  EXPECT_EQ(variable_of(".global .v2 .f32 x[] = {{1, 2}, {3, 4}, {5, 6}};").count, 3U);
}

TEST(Initialiser, FloatingPoint) {
  const Variable variable =
      variable_of(".global .f32 x[5] = {0f3F800000, -0f3F800000, 1.5, -0d3FF0000000000000, 2e-3};");
  ASSERT_EQ(variable.initial.size(), 5U);
  EXPECT_EQ(variable.initial[0].kind, Operand::Kind::floating);
  EXPECT_TRUE(variable.initial[0].is_f32);
  EXPECT_EQ(variable.initial[0].floating_bits, 0x3F800000U);
  EXPECT_EQ(variable.initial[1].floating_bits, 0xBF800000U);
  EXPECT_FALSE(variable.initial[2].is_f32);
  EXPECT_EQ(variable.initial[2].floating_bits, 0x3FF8000000000000U);
  EXPECT_EQ(variable.initial[3].floating_bits, 0xBFF0000000000000U);
  EXPECT_EQ(variable.initial[4].floating_bits, 0x3F60624DD2F1A9FCU);
}

TEST(Initialiser, AddressesOfOtherSymbolsAreKept) {
  const Variable variable = variable_of(
      ".global .u64 x[5] = {f, arr+12, generic(arr), generic(arr)+8, generic(arr+4)-2};");
  ASSERT_EQ(variable.initial.size(), 5U);
  for (const Operand& value : variable.initial) EXPECT_EQ(value.kind, Operand::Kind::symbol);
  EXPECT_EQ(variable.initial[0].name, "f");
  EXPECT_FALSE(variable.initial[0].negated);
  EXPECT_EQ(variable.initial[1].offset, 12);
  EXPECT_TRUE(variable.initial[2].negated);
  EXPECT_EQ(variable.initial[2].name, "arr");
  EXPECT_EQ(variable.initial[3].offset, 8);
  EXPECT_EQ(variable.initial[4].offset, 2);
}

TEST(Initialiser, SingleBytesOfAddresses) {
  const Variable variable = variable_of(".global .u8 x[3] = {1, 0XFF(generic(a)+12), 0xFF00(b)};");
  ASSERT_EQ(variable.initial.size(), 3U);
  EXPECT_EQ(variable.initial[1].kind, Operand::Kind::symbol);
  EXPECT_EQ(variable.initial[1].integer, 0xFFU);
  EXPECT_EQ(variable.initial[1].offset, 12);
  EXPECT_TRUE(variable.initial[1].negated);
  EXPECT_EQ(variable.initial[2].integer, 0xFF00U);
  EXPECT_FALSE(variable.initial[2].negated);
}

TEST(Constant, ExpressionsFollowTheUsualPrecedence) {
  const std::pair<const char*, std::uint64_t> expressions[] = {
      {"2 + 3 * 4", 14},
      {"(2 + 3) * 4", 20},
      {"1 << 4 | 3", 19},
      {"10 - 3 - 2", 5},
      {"7 / 2", 3},
      {"-7 / 2", static_cast<std::uint64_t>(-3)},
      {"7 % 4", 3},
      {"~0 >> 60", ~std::uint64_t{0}},
      {"(.u64)(~0) >> 60", 15},
      {"0xFFFFFFFFFFFFFFFF >> 60", 15},
      {"3 > 2 && 2 > 3 || 1", 1},
      {"-1 < 0 ? 5 : 6", 5},
      {"-1 < 0U ? 5 : 6", 6},
      {"!3 + !0", 1},
      {"6 ^ 5 & 4", 2},
      {"1 << 64", 0},
      {"WARP_SZ * 2", 64},
      {"(.s64) -9223372036854775808 / -1", std::uint64_t{1} << 63}};
  for (const auto& [text, value] : expressions) {
    const auto declaration = std::string(".global .u64 x = ") + text + ";";
    EXPECT_THAT(integers_of(variable_of(declaration)), ElementsAre(value)) << text;
  }
}

TEST(DeclarationError, BadDeclarationIsRefusedWithTheReason) {
  const std::pair<const char*, const char*> mistakes[] = {
      {".global .u32 x[2] = {1, 2, 3};", "an initialiser of 3 values for 2"},
      {".global .u32 x[2][2] = {{1, 2, 3}};", "an initialiser of 3 values for 2"},
      {".global .u32 x = {1, 2};", "an initialiser of 2 values for 1"},
      {".global .u32 x[];", "needs a size"},
      {".global .u32 x[2][];", "only an array's first dimension"},
      {".global .u32 x[0];", "between 1 and"},
      {".global .u32 x[-1];", "between 1 and"},
      {".global .u32 x[0f3F800000];", "must be an integer"},
      {".global .u32 x[1099511627776];", "larger than a variable can be"},
      {".global .u32 x[1000000][1000000][1000000];", "larger than a variable can be"},
      {".global .align 3 .u32 x;", "power of two"},
      {".global .pred x;", "only registers"},
      {".global .u32 .f32 x;", "two types"},
      {".global .align 4 x;", "expected a type"},
      {".global .q32 x;", "'.q32' is not a type"},
      {".global .u32 x .global", "expected ';'"},
      {".global .u32 x = 1/0;", "division by zero"},
      {".global .u32 x = 0f3F8;", "8 hexadecimal digits"},
      {".global .u32 x = 089;", "is not a number"},
      {".global .u32 x = 99999999999999999999;", "does not fit 64 bits"},
      {".global .u32 x = 1.0 + 2.0;", "arithmetic on floating-point"},
      {".global .u32 x = 0(y);", "mask"},
      {".shared .u32 x = 1;", "only .global and .const"},
      {".extern .global .u32 x = 1;", ".extern variable"},
      {".local .u32 x;", "outside of a function"},
      {".global .u32 x; .global .u32 x;", "declared twice"}};
  for (const auto& [text, message] : mistakes) {
    const std::string error = error_of(module_text(text));
    EXPECT_THAT(error, HasSubstr(message)) << text;
    EXPECT_THAT(error, ::testing::StartsWith("2: ")) << text;
  }
}

}  // namespace
}  // namespace ctxbroker::software::ptx
