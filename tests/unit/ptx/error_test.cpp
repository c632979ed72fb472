// SPDX-License-Identifier: Apache-2.0
// Mistakes: the line and a sentence that says what and where; bounds on hostile text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx_testing.hpp"

namespace ctxbroker::software::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SyntaxError, MistakesOfAModuleAreRefusedWithLineAndReason) {
  const std::pair<std::string, const char*> mistakes[] = {
      {"", "1: the text is no PTX: '.version' is missing"},
      {".version 9.0\n", "2: the text is no PTX: '.target' is missing"},
      {"hello", "1: expected a directive or declaration in the module, found 'hello'"},
      {".version x", "1: expected a number after '.version', found 'x'"},
      {".version 9.0 .target gfx90", "1: the target must begin with 'sm_'"},
      {".version 9.0 .target sm_75 .address_size 32", "1: only modules with 64-bit addresses"},
      {".version 9.0\n.target sm_75\n\x01", "3: the byte 1 ('?') begins nothing"},
      {".version 9.0\n/* never\nends", "2: this comment (/*) never ends"},
      {".version 9.0 .target sm_75\n.file 1 \"a\nb\"", "2: this string has no closing"},
      {".version 9.0 .target sm_75\n\n.section .debug_x {\n", "3: this section never ends"},
      {module_text(".bogus 4;"), "2: '.bogus' has no meaning outside of a function"},
      {module_text(".alias a, b;"), "2: the alias 'a' names 'b', which is not defined"}};
  for (const auto& [text, error] : mistakes) EXPECT_THAT(error_of(text), StartsWith(error)) << text;
}

TEST(SyntaxError, MistakesInAFunctionAreRefusedWithLineAndReason) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"add.s32 %r1, %r2", "4: expected ';' after the operands of 'add.s32', found '}'"},
      {"add.s32 %r1 %r2;", "3: expected ';' after the operands of 'add.s32', found '%r2'"},
      {"add.s32 %r1, ;", "3: expected an operand in the operands of 'add.s32', found ';'"},
      {"ret;\nbra NOWHERE;", "4: the label 'NOWHERE' is not in this function"},
      {"ts: .branchtargets A;", "3: the label 'A' is not in this function"},
      {"L:\nL: ret;", "4: 'L' is declared twice in the same scope"},
      {".reg .b32 a;\n.reg .f32 a;", "4: 'a' is declared twice in the same scope"},
      {".reg .b32 %r<4>;\n.reg .b32 %r<4>;", "4: '%r<...>' is declared twice"},
      {".reg .b32 %r<0>;", "3: a number of registers must be between 1 and"},
      {".reg .b32 %r<99999999>;", "3: a number of registers must be between 1 and"},
      {"@%q ret;", "3: the predicate '%q' is not a declared register"},
      {"ld.u32 %r1, [%rd1+%rd2];", "3: expected a constant after '+' in an address"},
      {"ld.u32 %r1, [0f00000000];", "3: an address cannot be a float"},
      {"ld.u32 %r1, [%rd1;", "3: expected ']' at the end of an address"},
      {"ld.global.u32 %r1, smem[q];", "3: an index must be a constant or a register"},
      {"ld.global.u32 %r1, smem[1.5];", "3: an index cannot be a float"},
      {"ld.global.u32 %r1, smem[1;", "3: expected ']' after an index"},
      {"vote.ballot.b32 %r1, %p1;",
       "3: 'vote.ballot.b32' is not allowed since PTX 6.4 for sm_70 and newer; write "
       "'vote.sync.ballot.b32' and add the mask of the lanes that take part as its last operand"},
      {"shfl.down.b32 %r1, %r2, 1, 31;",
       "3: 'shfl.down.b32' is not allowed since PTX 6.4 for sm_70 and newer; write "
       "'shfl.sync.down.b32'"},
      {"match.any.b32 %r1, %r2, -1;",
       "3: 'match.any.b32' does not exist; write 'match.any.sync.b32'"},
      {"redux.add.s32 %r1, %r2, -1;",
       "3: 'redux.add.s32' does not exist; write 'redux.sync.add.s32'"},
      {"setp.eq.s32 %p1|3, %r1, %r2;", "3: both sides of '|' must be registers"},
      {"mov.b64 %rd1, {%r1, %r2;", "3: expected '}' in the operands of 'mov.b64'"},
      {".bogus;", "3: '.bogus' has no meaning in a function"},
      {".shared .u32 s = 1;", "3: only .global and .const variables can have initial values"},
      {"mov.pred %p1, !5;", "3: expected an operand"},
      {"{", "5: the text ends inside of 'k', whose body begins in line 2"}};
  for (const auto& [body, error] : mistakes) {
    EXPECT_THAT(error_of(kernel_text(body)), StartsWith(error)) << body;
  }
}

TEST(SyntaxError, MistakesInFunctionHeadersAreRefusedWithTheReason) {
  const std::pair<const char*, const char*> mistakes[] = {
      {".entry k() .bogus { ret; }", "'.bogus' is not a directive of a function"},
      {".entry k() .maxntid 1, 2, 3, 4 { ret; }", "no more numbers after '.maxntid'"},
      {".entry k() .maxntid 65536, 65536, 2 { ret; }", "more threads than a block can have"},
      {".entry k() .maxntid -1 { ret; }", "between 0 and"},
      {".entry k(.shared .u32 x) { ret; }", "a parameter is .param or .reg, not '.shared'"},
      {".entry k(.param .u32 x, .param .u32 x) { ret; }", "'x' is declared twice"},
      {".entry k() { ret; }\n.entry k() { ret; }", "'k' is defined twice"},
      {".extern .func k() { ret; }", "expected ';' after an .extern function"},
      {".entry () { ret; }", "expected a name of a function"}};
  for (const auto& [text, error] : mistakes) {
    EXPECT_THAT(error_of(module_text(text)), HasSubstr(error)) << text;
  }
}

TEST(SyntaxError, MessagesCarryNoUnprintableBytes) {
  std::string text = module_text("\x1b[31m\xff");
  const std::string error = error_of(text);
  ASSERT_FALSE(error.empty());
  for (const char c : error) EXPECT_TRUE(c >= ' ' && c <= '~') << error;
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Bounds, NestingEndsInAnErrorNotInTheStack) {
  const std::size_t deep = 1'000'000;
  EXPECT_THAT(error_of(kernel_text(repeated("{", deep))), HasSubstr("the limit ptx_nesting"));
  EXPECT_THAT(error_of(kernel_text("mov.b64 x, " + repeated("{", deep))),
              HasSubstr("the limit ptx_nesting"));
  EXPECT_THAT(error_of(kernel_text("ld.u32 x, " + repeated("[x,", deep))),
              HasSubstr("the limit ptx_nesting"));
  EXPECT_THAT(error_of(kernel_text("call " + repeated("(", deep))),
              HasSubstr("the limit ptx_nesting"));
  EXPECT_THAT(error_of(module_text(".global .u32 x[4] = " + repeated("{", deep))),
              HasSubstr("the limit ptx_nesting"));
  for (const char* prefix : {"(", "-", "~", "(.s64)", "1?", "1?1:", "1+(", "1||1&&1|1+"}) {
    EXPECT_THAT(
        error_of(module_text(".global .u32 x = " + repeated(prefix, deep))),
        ::testing::AnyOf(HasSubstr("the limit ptx_nesting"), HasSubstr("expected a constant")))
        << prefix;
  }
}

TEST(Bounds, CountsAreLimited) {
  EXPECT_THAT(error_of(kernel_text("call f, (" + repeated("1,", 5000) + "1);")),
              HasSubstr("the limit ptx_operands"));
  EXPECT_THAT(error_of(kernel_text("add" + repeated(".x", 100) + " 1;")),
              HasSubstr("the limit ptx_modifiers"));
  EXPECT_THAT(error_of(module_text(".global .u32 x" + repeated("[1]", 100) + ";")),
              HasSubstr("the limit ptx_dimensions"));
  EXPECT_THAT(error_of(module_text(".global .u32 " + repeated("x", 100'000) + ";")),
              HasSubstr("the limit ptx_word"));
}

TEST(Bounds, ShortTextCannotAskForMuchMemory) {
  EXPECT_THAT(error_of(module_text(".global .u8 x[2][549755813888] = {{}, {}};")),
              HasSubstr("the limit module_memory"));
}

TEST(Bounds, TheTextIsLimited) {
  EXPECT_THAT(error_of(std::string(limits::ptx_text.most + 1, ' ')),
              HasSubstr("the limit ptx_text"));
}

TEST(Bounds, TextsAndWordsThatAreLinkedIntoOneModuleAreLimitedTogether) {
  const std::string text = module_text(".global .u32 x;");
  for (Budget ModuleBudget::*counted : {&ModuleBudget::text, &ModuleBudget::words}) {
    ModuleBudget budget;
    parse(text, budget);
    const std::uint64_t of_one = (budget.*counted).taken();
    ASSERT_GT(of_one, 0U);
    ASSERT_TRUE((budget.*counted).take((budget.*counted).limit().most - 3 * of_one + 1));
    parse(text, budget);  // the control
    try {
      parse(text, budget);
      ADD_FAILURE() << "it was accepted";
    } catch (const SyntaxError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("the limit ") + (budget.*counted).limit().name));
    }
  }
}

TEST(Bounds, OperandsAndModifiersOfAModuleAreLimitedByTheirMemory) {
  const std::size_t operands = limits::module_memory.most / sizeof(Operand) / 4000 + 1;
  EXPECT_THAT(error_of(kernel_text(repeated("x " + repeated("1,", 3999) + "1;\n", operands))),
              HasSubstr("the limit module_memory"));
}

}  // namespace
}  // namespace ctxbroker::software::ptx
