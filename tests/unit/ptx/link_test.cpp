// SPDX-License-Identifier: Apache-2.0
// Several modules to one: which names meet, which stay apart, and what is said when it cannot be.
#include "ptx/link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx/parser.hpp"

namespace ctxbroker::software::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// The inputs are named a, b, c.
std::vector<LinkInput> inputs(const std::vector<std::string>& texts) {
  std::vector<LinkInput> list;
  for (const std::string& text : texts) {
    const std::string name(1, static_cast<char>('a' + list.size()));
    list.push_back({name, parse(".version 8.0\n.target sm_80\n.address_size 64\n" + text)});
  }
  return list;
}

std::string errors_of(const std::vector<std::string>& texts) {
  try {
    link(inputs(texts));
  } catch (const LinkError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const Function& function : module.functions) names.push_back(function.name);
  for (const Variable& variable : module.variables) names.push_back(variable.name);
  return names;
}

const std::string definition = ".visible .func (.param .b32 r) f(.param .b32 x) { ret; }";
const std::string declaration = ".extern .func (.param .b32 r) f(.param .b32 x);";
const std::string call =
    ".visible .entry k() { .param .b32 in; .param .b32 out; call.uni (out), f, (in); ret; }";

TEST(Link, ADeclarationMeetsItsDefinition) {
  const Module module = link(inputs({declaration + call, definition}));
  EXPECT_THAT(names_of(module), UnorderedElementsAre("k", "f"));
  for (const Function& function : module.functions) EXPECT_FALSE(function.is_declaration);
  EXPECT_EQ(module.target, "sm_80");
}

TEST(Link, ADeclarationNeedsNoExtern) {
  EXPECT_EQ(errors_of({".func (.param .b32 r) f(.param .b32 x);" + call, definition}), "");
  EXPECT_THAT(errors_of({".func (.param .b32 r) f(.param .b32 x);" + call}),
              HasSubstr("Undefined reference to 'f' in 'a'"));
}

TEST(Link, UnusedDeclarationNeedsNoDefinition) {
  EXPECT_EQ(errors_of({declaration + ".extern .global .u32 g; .visible .entry k() { ret; }"}), "");
}

TEST(Link, FunctionOfTheDriverNeedsNoDefinition) {
  EXPECT_EQ(errors_of({".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
                       ".visible .entry k() { .param .b64 a; .param .b32 out;"
                       " call.uni (out), vprintf, (a, a); ret; }"}),
            "");
}

TEST(Link, ErrorsNameTheFiles) {
  const struct {
    std::vector<std::string> texts;
    const char* error;
  } cases[] = {
      {{declaration + call}, "error   : Undefined reference to 'f' in 'a'\n"},
      {{".extern .global .u32 g; .visible .global .u64 p = g;"},
       "error   : Undefined reference to 'g' in 'a'\n"},
      {{definition, declaration, definition},
       "error   : Multiple definition of 'f' in 'c', first defined in 'a'\n"},
      {{".visible .global .u32 g;", ".visible .global .u32 g = 1;"},
       "error   : Multiple definition of 'g' in 'b', first defined in 'a'\n"},
      {{".visible .entry k() { ret; }", ".visible .entry k() { ret; }"},
       "error   : Multiple definition of 'k' in 'b', first defined in 'a'\n"},
      {{declaration + call, ".visible .func (.param .b32 r) f(.param .b64 x) { ret; }"},
       "error   : Prototype doesn't match for 'f' in 'b', first defined in 'a'\n"},
      {{declaration + call, ".visible .func f(.param .b32 x) { ret; }"},
       "error   : Prototype doesn't match for 'f' in 'b', first defined in 'a'\n"},
      {{".extern .global .u64 g;", ".visible .global .u32 g;"},
       "error   : Size doesn't match for 'g' in 'b', first specified in 'a'\n"},
      {{".extern .global .u32 g;", ".visible .const .u32 g = 1;"},
       "error   : Memory space doesn't match for 'g' in 'b', first specified in 'a'\n"},
      {{declaration, ".visible .global .u32 f;"},
       "error   : Memory space doesn't match for 'f' in 'b', first specified in 'a'\n"},
  };
  for (const auto& [texts, error] : cases) EXPECT_THAT(errors_of(texts), HasSubstr(error));
  EXPECT_THROW(check_definitions(inputs({definition, definition})), LinkError);
  EXPECT_NO_THROW(check_definitions(inputs({declaration + call})));
}

TEST(Link, SizesThatAreOpenOrCommonMayDiffer) {
  EXPECT_EQ(errors_of({".extern .global .u32 g[];", ".visible .global .u32 g[4];"}), "");
  EXPECT_EQ(errors_of({".common .global .u32 g[2];", ".common .global .u32 g[4];"}), "");
}

TEST(Link, WeakYieldsToVisibleAndTheFirstWeakIsTaken) {
  const std::string first = ".weak .global .u32 g = 1;", second = ".weak .global .u32 g = 2;",
                    strong = ".visible .global .u32 g = 3;";
  const struct {
    std::vector<std::string> texts;
    std::uint64_t value;
  } cases[] = {{{first, second}, 1},
               {{first, strong}, 3},
               {{strong, first}, 3},
               {{second, first, strong}, 3}};
  for (const auto& [texts, value] : cases) {
    const Module module = link(inputs(texts));
    ASSERT_EQ(module.variables.size(), 1U);
    EXPECT_EQ(module.variables[0].initial.at(0).integer, value);
  }
}

TEST(Link, PrivateNamesOfFilesStayApart) {
  const std::string own =
      ".global .u32 g = 1; .func f() { .reg .b32 %r<2>; ld.global.u32 %r1, [g];"
      " ret; } .global .u64 p = generic(g);";
  const Module module = link(
      inputs({own + ".visible .entry k() { call f, (); ret; }",
              own + ".visible .entry l() { call f, (); ret; }", ".visible .global .u32 g = 9;"}));
  // The visible one keeps its name, wherever it stands.
  EXPECT_THAT(names_of(module),
              UnorderedElementsAre("f", "k", "f@2", "l", "g@1", "p", "g@2", "p@2", "g"));
  for (const Function& function : module.functions) {
    if (function.name == "f@2") {
      EXPECT_EQ(function.body.at(0).operands.at(1).name, "g@2");
    }
    if (function.name == "l") {
      EXPECT_EQ(function.body.at(0).operands.at(0).name, "f@2");
    }
  }
  for (const Variable& variable : module.variables) {
    if (variable.name == "p@2") {
      EXPECT_EQ(variable.initial.at(0).name, "g@2");
    }
  }
}

TEST(Link, NamesInsideOfAFunctionHideThoseOfTheModule) {
  const Module module =
      link(inputs({".global .u32 x;",
                   ".global .u32 x; .func f() { .local .b32 x; .reg .b32 %r<2>;"
                   " ld.local.u32 %r1, [x]; ret; } .entry k() { call f, (); ret; }"}));
  for (const Function& function : module.functions) {
    if (function.name == "f") {
      EXPECT_EQ(function.body.at(0).operands.at(1).name, "x");
    }
  }
}

TEST(Link, DynamicSharedMemoryIsOneForAll) {
  const std::string dynamic = ".extern .shared .align 16 .b8 buffer[];";
  const Module module =
      link(inputs({dynamic, dynamic, ".shared .b8 own[4];", ".shared .b8 own[8];"}));
  EXPECT_THAT(names_of(module), UnorderedElementsAre("buffer", "own", "own@4"));
}

TEST(Link, StandInsAreDefinitionsOfAllThatIsExpected) {
  const Module module =
      with_stand_ins(inputs({declaration + ".extern .global .u32 g[];" + call}).at(0).module);
  for (const Function& function : module.functions) EXPECT_FALSE(function.is_declaration);
  EXPECT_EQ(module.variables.at(0).size_bytes(), 4U);
}

TEST(Link, ErrorsAreLimited) {
  std::string text;
  for (std::uint64_t i = 0; i <= limits::link_errors.most; ++i) {
    text += ".visible .global .u32 x" + std::to_string(i) + ";\n";
  }
  try {
    link(inputs({text, text}));
    ADD_FAILURE() << "it was linked";
  } catch (const LinkError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the limit link_errors"));
    const std::string said = error.what();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'),
              static_cast<std::ptrdiff_t>(limits::link_errors.most + 1));
  }
}

TEST(Link, InputsShareTheBudgetOfTheModule) {
  const std::string text = module_text(".global .u32 x[4] = {1, 2, 3, 4}; .entry k() { ret; }");
  ModuleBudget one, both;
  parse(text, one);
  parse(text, both);
  parse(text, both);
  EXPECT_GT(one.memory.taken(), text.size());
  EXPECT_EQ(both.memory.taken(), 2 * one.memory.taken());
}

}  // namespace
}  // namespace ctxbroker::software::ptx
