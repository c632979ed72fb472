// SPDX-License-Identifier: Apache-2.0
// Kernels, functions, their directives, scopes, labels and tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx_testing.hpp"

namespace ctxbroker::software::ptx {
namespace {

using ::testing::ElementsAre;

Function function_of(const std::string& text) {
  return parse(module_text(text)).functions.at(0);
}

TEST(Function, KernelWithParameters) {
  const Function kernel = function_of(
      ".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[40],\n"
      ".param .f32 c) { ret; }");
  EXPECT_EQ(kernel.name, "k");
  EXPECT_TRUE(kernel.is_entry);
  EXPECT_FALSE(kernel.is_declaration);
  ASSERT_EQ(kernel.parameters.size(), 3U);
  EXPECT_EQ(kernel.parameters[0].alignment, 8U) << "what it points to is aligned to 16, not it";
  EXPECT_EQ(kernel.parameters[1].size_bytes(), 40U);
  EXPECT_EQ(kernel.parameters[1].alignment, 8U);
  EXPECT_EQ(kernel.parameters[2].type, Type::f32);
  EXPECT_EQ(kernel.parameters[2].line, 3U);
}

TEST(Function, KernelWithoutParameters) {
  EXPECT_TRUE(function_of(".entry k { ret; }").parameters.empty());
  EXPECT_TRUE(function_of(".entry k() { ret; }").parameters.empty());
}

TEST(Function, ResultsAndRegistersAsParameters) {
  const Function function = function_of(
      ".func (.reg .u32 out) f(.reg .u32 in, .param .b32 other) { add.u32 out, in, in; ret; }");
  EXPECT_FALSE(function.is_entry);
  ASSERT_EQ(function.results.size(), 1U);
  EXPECT_EQ(function.results[0].space, Space::reg);
  EXPECT_EQ(function.body[0].operands[0].kind, Operand::Kind::reg);
}

TEST(Function, ADefinitionReplacesItsDeclaration) {
  const Module module = parse(module_text(
      ".func (.param .b32 r) f(.param .b32 a);\n.extern .func g(.param .b64 x);\n"
      ".func (.param .b32 r) f(.param .b32 a) { ret; }\n.func (.param .b32 r) f(.param .b32 a);"));
  ASSERT_EQ(module.functions.size(), 2U);
  EXPECT_FALSE(named(module.functions, "f").is_declaration);
  EXPECT_TRUE(named(module.functions, "g").is_declaration);
}

TEST(Function, Directives) {
  const Function kernel = function_of(
      ".entry k() .maxntid 128, 2, 1 .reqntid 16, 4 .minnctapersm 2 .maxnreg 32 .explicitcluster\n"
      ".reqnctapercluster 2, 1, 1 .pragma \"nounroll\"; { ret; }");
  EXPECT_EQ(kernel.max_threads, 256U);
  EXPECT_EQ(kernel.required_threads[0], 16U);
  EXPECT_EQ(kernel.required_threads[1], 4U);
  EXPECT_EQ(kernel.required_threads[2], 1U);
  EXPECT_FALSE(function_of(".entry k() { ret; }").max_threads.has_value());
  EXPECT_FALSE(function_of(".entry k() { ret; }").required_threads[0].has_value());
}

TEST(Function, NoReturnAndAttributes) {
  EXPECT_EQ(function_of(".extern .func f (.param .b64 a) .noreturn;").name, "f");
  EXPECT_EQ(function_of(".func .attribute(.unified(1, 2)) f () { ret; }").name, "f");
}

TEST(Function, RegistersAndVariables) {
  const Function kernel = kernel_of(
      ".reg .b32 %r<12>, %s<3>; .reg .b64 %SP; .reg .v4 .f32 %v;\n"
      ".local .align 16 .b8 depot[96]; .shared .u32 count; .param .b32 param0; ret;");
  ASSERT_EQ(kernel.registers.size(), 4U);
  EXPECT_EQ(kernel.registers[0].name, "%r");
  EXPECT_EQ(kernel.registers[0].register_count, 12U);
  EXPECT_EQ(kernel.registers[1].register_count, 3U);
  EXPECT_EQ(kernel.registers[2].name, "%SP");
  EXPECT_EQ(kernel.registers[2].register_count, 0U);
  EXPECT_EQ(kernel.registers[3].vector, 4U);
  ASSERT_EQ(kernel.variables.size(), 3U);
  EXPECT_EQ(named(kernel.variables, "depot").space, Space::local);
  EXPECT_EQ(named(kernel.variables, "count").space, Space::shared);
  EXPECT_EQ(named(kernel.variables, "param0").space, Space::param);
}

TEST(Function, InstructionsKnowTheirLines) {
  const Function kernel = kernel_of("bar.sync 0;\n\nret;");
  EXPECT_EQ(kernel.body[0].line, 3U);
  EXPECT_EQ(kernel.body[1].line, 5U);
}

TEST(Function, DebugDirectivesInBodiesAreSkipped) {
  const Function kernel = kernel_of(
      ".loc 1 12 0\n.loc 1 20 3, function_name $L__info_string0, inlined_at 1 30 7\n"
      ".loc 2 5 1, function_name $L__s+12, inlined_at 1 3 3\n.pragma \"nounroll\";\nret;");
  EXPECT_EQ(kernel.body.size(), 1U);
}

TEST(Scope, InnerNamesAreMadeUnique) {
  const Function kernel = kernel_of(
      ".reg .b32 %r<4>; .reg .b32 t;\n"
      "{ .reg .b32 t; .param .b32 param0; mov.b32 t, %r1; st.param.b32 [param0+0], t; }\n"
      "{ .reg .b32 t; .param .b32 param0; mov.b32 t, %r2; st.param.b32 [param0+0], t; }\n"
      "mov.b32 t, %r3;");
  EXPECT_EQ(kernel.body[0].operands[0].name, "t@1");
  EXPECT_EQ(kernel.body[0].operands[1].name, "%r1");
  EXPECT_EQ(kernel.body[1].operands[0].name, "param0@1");
  EXPECT_EQ(kernel.body[2].operands[0].name, "t@2");
  EXPECT_EQ(kernel.body[3].operands[0].name, "param0@2");
  EXPECT_EQ(kernel.body[4].operands[0].name, "t");
  EXPECT_EQ(named(kernel.variables, "param0@2").type, Type::b32);
  EXPECT_EQ(named(kernel.registers, "t@1").register_count, 0U);
}

TEST(Scope, InnerRangesHideOuterOnes) {
  const Function kernel = kernel_of(
      ".reg .b32 %r<9>; { .reg .b32 %r<4>; mov.b32 %r3, %r5; { .reg .b32 %r3; mov.b32 %r3, %r2; } "
      "}");
  const Variable& inner = kernel.registers[1];
  EXPECT_EQ(inner.register_count, 4U);
  EXPECT_EQ(kernel.body[0].operands[0].name, inner.name + "3");
  EXPECT_EQ(kernel.body[0].operands[1].name, "%r5") << "beyond the inner range: the outer one";
  EXPECT_EQ(kernel.body[1].operands[0].name, "%r3@2");
  EXPECT_EQ(kernel.body[1].operands[1].name, inner.name + "2");
}

TEST(Scope, ManyScopesNeverShareNames) {
  std::string body;
  for (int i = 0; i < 40; ++i) {
    body += "{ .reg .b32 %r; .reg .b32 %r<60>; mov.b32 %r, %r" + std::to_string(i) + "; }\n";
  }
  const Function kernel = kernel_of(body);
  std::vector<std::string> names;
  for (const Variable& variable : kernel.registers) {
    if (variable.register_count == 0) names.push_back(variable.name);
    for (std::uint32_t i = 0; i < variable.register_count; ++i) {
      names.push_back(variable.name + std::to_string(i));
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(names.size(), 40U * 61U);
}

TEST(Scope, ANameIsLookedUpFromTheInnermostScopeOutwards) {
  const Function kernel = kernel_of(
      ".reg .b32 %a<9>; .reg .b32 %a1; A:\n"
      "{ .reg .b32 %a<3>; { .reg .b32 %a11; { .reg .b32 %a1<2>; mov.b32 %a11, %a1; } } "
      "bra A; { bra A; { bra A; } A: } }\n"
      "mov.b32 %a1, %a2;");
  EXPECT_EQ(kernel.body[0].operands[0].name, "%a1@3@1") << "the range is declared further inside";
  EXPECT_EQ(kernel.body[0].operands[1].name, "%a@1@1");
  EXPECT_EQ(kernel.body[1].operands[0].name, "A");
  EXPECT_EQ(kernel.body[2].operands[0].name, "A@4");
  EXPECT_EQ(kernel.body[3].operands[0].name, "A@4");
  EXPECT_EQ(kernel.body[4].operands[0].name, "%a1") << "the inner ones have ended";
  EXPECT_EQ(kernel.body[4].operands[1].name, "%a2");
}

TEST(Label, StandsForTheNextInstruction) {
  const Function kernel = kernel_of("A: ret; B: C: trap; D:");
  ASSERT_EQ(kernel.labels.size(), 4U);
  EXPECT_EQ(named(kernel.labels, "A").instruction, 0U);
  EXPECT_EQ(named(kernel.labels, "B").instruction, 1U);
  EXPECT_EQ(named(kernel.labels, "C").instruction, 1U);
  EXPECT_EQ(named(kernel.labels, "D").instruction, 2U);
}

TEST(Label, BackwardAndForwardBranches) {
  const Function kernel = kernel_of("A: bra B; B: bra.uni A;");
  for (const Instruction& branch : kernel.body) {
    ASSERT_EQ(branch.operands.size(), 1U);
    EXPECT_EQ(branch.operands[0].kind, Operand::Kind::label);
  }
  EXPECT_EQ(kernel.body[0].operands[0].name, "B");
  EXPECT_EQ(kernel.body[1].operands[0].name, "A");
}

TEST(Label, LabelsInScopesOfTheirOwnAreSeparate) {
  const Function kernel = kernel_of("{ bra DONE; DONE: } { bra DONE; DONE: } bra DONE; DONE: ret;");
  EXPECT_EQ(kernel.body[0].operands[0].name, "DONE@1");
  EXPECT_EQ(kernel.body[1].operands[0].name, "DONE@2");
  EXPECT_EQ(kernel.body[2].operands[0].name, "DONE");
  EXPECT_EQ(named(kernel.labels, "DONE@2").instruction, 2U);
}

TEST(Table, BranchTargetsAreATableOfLabels) {
  const Function kernel = kernel_of(
      ".reg .u32 %r<2>; { ts: .branchtargets A, B, A; brx.idx.uni %r1, ts; } A: ret; B: trap;");
  ASSERT_EQ(kernel.branch_tables.size(), 1U);
  EXPECT_EQ(kernel.branch_tables[0].name, "ts@1");
  EXPECT_THAT(kernel.branch_tables[0].targets, ElementsAre("A", "B", "A"));
  EXPECT_EQ(kernel.body[0].operands[1].kind, Operand::Kind::label);
  EXPECT_EQ(kernel.body[0].operands[1].name, "ts@1");
}

TEST(Table, CallTargetsAreATableOfFunctions) {
  const Function kernel = kernel_of("ct: .calltargets f, g; ret;");
  EXPECT_THAT(kernel.branch_tables.at(0).targets, ElementsAre("f", "g"));
}

TEST(Prototype, PrototypeOfAnIndirectCallIsRead) {
  const Function kernel = kernel_of(
      ".reg .b64 %rd<2>; { .param .b32 a; .param .b32 r;\n"
      "proto : .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]);\n"
      "call (r), %rd1, (a, a), proto; }");
  ASSERT_EQ(kernel.prototypes.size(), 1U);
  EXPECT_EQ(kernel.prototypes[0].name, "proto@1");
  EXPECT_EQ(kernel.prototypes[0].results.size(), 1U);
  ASSERT_EQ(kernel.prototypes[0].parameters.size(), 2U);
  EXPECT_EQ(kernel.prototypes[0].parameters[1].size_bytes(), 16U);
  const auto& operands = kernel.body.at(0).operands;
  ASSERT_EQ(operands.size(), 4U);
  EXPECT_EQ(operands[0].kind, Operand::Kind::list);
  EXPECT_EQ(operands[0].elements.at(0).name, "r@1");
  EXPECT_EQ(operands[1].kind, Operand::Kind::reg);
  EXPECT_EQ(operands[2].elements.size(), 2U);
  EXPECT_EQ(operands[3].kind, Operand::Kind::label);
  EXPECT_EQ(operands[3].name, "proto@1");
}

TEST(Alias, IsACopyUnderAnotherName) {
  const Module module = parse(module_text(
      ".visible .func other();\n.alias other, real;\n.visible .func real() { trap; ret; }\n"));
  const Function& other = named(module.functions, "other");
  EXPECT_FALSE(other.is_declaration);
  EXPECT_EQ(other.body.size(), 2U);
}

}  // namespace
}  // namespace ctxbroker::software::ptx
