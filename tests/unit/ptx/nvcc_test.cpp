// SPDX-License-Identifier: Apache-2.0
// What nvcc really writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ptx_testing.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view language_ptx, language_debug_ptx, language_lines_ptx, arithmetic_ptx,
    small_ptx;
}

namespace ctxbroker::software::ptx {
namespace {

using ::testing::Contains;

// Lines of the text that hold an instruction, counted without the parser: those that end in ";" and
// begin neither with a dot nor like a prototype. Of a call's lines only the last ends so.
std::size_t count_instruction_lines(std::string_view text) {
  std::size_t count = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool ends = line.ends_with(";") && line.find("//") == std::string_view::npos;
    const bool other = line.starts_with(".") || line.starts_with("prototype_") || line == ";" ||
                       line.starts_with("$L");
    if (ends && !other) ++count;
  }
  return count;
}

std::size_t count_instructions(const Module& module) {
  std::size_t count = 0;
  for (const Function& function : module.functions) count += function.body.size();
  return count;
}

// Every register and label that an instruction names must be declared; special registers and what
// belongs to the module are known by name.
void expect_names_declared(const Module& module) {
  for (const Function& function : module.functions) {
    std::set<std::string> names;
    for (const Variable& variable : function.registers) {
      if (variable.register_count == 0) names.insert(variable.name);
      for (std::uint32_t i = 0; i < variable.register_count; ++i) {
        names.insert(variable.name + std::to_string(i));
      }
    }
    for (const auto* list : {&function.variables, &function.parameters, &function.results}) {
      for (const Variable& variable : *list) names.insert(variable.name);
    }
    for (const Label& label : function.labels) names.insert(label.name);
    for (const auto& prototype : function.prototypes) names.insert(prototype.name);
    for (const auto& table : function.branch_tables) names.insert(table.name);
    for (const Variable& variable : module.variables) names.insert(variable.name);
    for (const Function& other : module.functions) names.insert(other.name);
    const std::set<std::string> special = {"%tid",    "%ntid",        "%ctaid",      "%nctaid",
                                           "%laneid", "%lanemask_le", "%lanemask_lt"};
    const auto check = [&](const auto& self, const Operand& operand, std::uint32_t line) -> void {
      for (const Operand& element : operand.elements) self(self, element, line);
      if (operand.name.empty() || names.contains(operand.name)) return;
      const std::string base = operand.name.substr(0, operand.name.find('.'));
      EXPECT_TRUE(special.contains(base)) << operand.name << " in line " << line;
    };
    for (const Instruction& instruction : function.body) {
      for (const Operand& operand : instruction.operands) check(check, operand, instruction.line);
      if (!instruction.guard) continue;
      EXPECT_THAT(names, Contains(instruction.guard->predicate));
    }
  }
}

TEST(Nvcc, EveryInstructionOfNvccIsRead) {
  for (const std::string_view text : {fixtures::arithmetic_ptx, fixtures::small_ptx}) {
    EXPECT_EQ(count_instructions(parse(text)), count_instruction_lines(text));
  }
}

TEST(Nvcc, EveryNameInNvccsTextIsDeclared) {
  for (const std::string_view text :
       {fixtures::language_ptx, fixtures::language_debug_ptx, fixtures::language_lines_ptx,
        fixtures::arithmetic_ptx, fixtures::small_ptx}) {
    expect_names_declared(parse(text));
  }
}

TEST(Nvcc, KernelsOfNvccHaveTheirParameters) {
  const Module module = parse(fixtures::language_ptx);
  EXPECT_EQ(module.target, "sm_75");
  const Function& kernel = named(module.functions, "language");
  EXPECT_TRUE(kernel.is_entry);
  EXPECT_EQ(kernel.max_threads, 128U);
  ASSERT_EQ(kernel.parameters.size(), 3U);
  EXPECT_EQ(kernel.parameters[0].size_bytes(), 8U);
  EXPECT_EQ(kernel.parameters[1].size_bytes(), 40U);
  EXPECT_EQ(kernel.parameters[1].alignment, 8U);
  EXPECT_EQ(kernel.parameters[2].size_bytes(), 4U);
  EXPECT_TRUE(named(module.functions, "vprintf").is_declaration);
}

TEST(Nvcc, VariablesOfNvccHaveSizeAndAlignment) {
  const Module module = parse(fixtures::language_ptx);
  const Variable& taps = named(module.variables, "taps");
  EXPECT_EQ(taps.space, Space::constant);
  EXPECT_EQ(taps.size_bytes(), 68U);
  EXPECT_EQ(named(module.variables, "colours").alignment, 16U);
  EXPECT_EQ(named(module.variables, "matrix").size_bytes(), 48U);
  const Variable& dynamic = named(module.variables, "dynamic");
  EXPECT_TRUE(dynamic.is_extern);
  EXPECT_EQ(dynamic.space, Space::shared);

  const Operand& fourth = named(module.variables, "fourth").initial.at(0);
  EXPECT_EQ(fourth.kind, Operand::Kind::symbol);
  EXPECT_EQ(fourth.name, "numbers");
  EXPECT_EQ(fourth.offset, 12);
  EXPECT_TRUE(fourth.negated) << "generic(numbers)+12";

  const Variable& operations = named(module.variables, "operations");
  ASSERT_EQ(operations.initial.size(), 2U);
  EXPECT_TRUE(named(module.functions, operations.initial[0].name).results.size() == 1);

  const Variable& packed = named(module.variables, "packed");
  ASSERT_EQ(packed.initial.size(), 9U);
  EXPECT_EQ(packed.initial[2].integer, 0xFF00U);
  EXPECT_EQ(packed.initial[2].name, "numbers");
}

TEST(Nvcc, DebugInformationChangesNoDeclaration) {
  const Module plain = parse(fixtures::language_ptx);
  const Module debug = parse(fixtures::language_debug_ptx);
  for (const Variable& variable : plain.variables) {
    if (variable.name.starts_with("$")) continue;
    EXPECT_EQ(named(debug.variables, variable.name).size_bytes(), variable.size_bytes());
  }
  const Module lines = parse(fixtures::language_lines_ptx);
  EXPECT_EQ(named(lines.functions, "language").parameters.size(), 3U);
}

}  // namespace
}  // namespace ctxbroker::software::ptx
