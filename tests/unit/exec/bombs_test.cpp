// SPDX-License-Identifier: Apache-2.0
// Small texts that ask for much: each is refused by the name of its limit, or costs what its text
// costs. Costs are counted by the limits and never by the clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "exec/code.hpp"
#include "exec/execute.hpp"
#include "exec/program.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view software_device_page;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string head = ".version 8.0 .target sm_75 .address_size 64\n";

std::string kernel(const std::string& body, const std::string& name = "k") {
  return ".entry " + name + "(.param .u64 p) {\n" + body + "\nret; }\n";
}

// `text` once for each number below `count`, in the place of '#'; of '^' stands the next number.
std::string numbered(const std::string& text, unsigned count) {
  std::string all;
  for (unsigned i = 0; i < count; ++i) {
    for (const char c : text) {
      if (c == '#') {
        all += std::to_string(i);
      } else if (c == '^') {
        all += std::to_string(i + 1);
      } else {
        all += c;
      }
    }
  }
  return all;
}

struct Cost {
  std::string error;
  std::uint64_t memory = 0, steps = 0, analysis = 0;
  std::shared_ptr<const Program> program = nullptr;
};

Cost cost_of(const std::string& text) {
  ptx::ModuleBudget budget;
  Cost cost;
  try {
    cost.program = compile(ptx::parse(head + text, budget), budget);
  } catch (const ptx::SyntaxError& error) {
    cost.error = error.what();
  }
  cost.memory = budget.memory.taken();
  cost.steps = budget.steps.taken();
  cost.analysis = budget.analysis.taken();
  return cost;
}

void expect_refused(const std::string& text, const limits::Limit& limit) {
  const std::string error = cost_of(text).error;
  EXPECT_THAT(error, HasSubstr(std::string("the limit ") + limit.name));
  EXPECT_THAT(error, HasSubstr(std::to_string(limit.most)));
  EXPECT_THAT(error, HasSubstr(limit.remedy));
}

TEST(Bombs, DeclaredRegistersCostNothingUntilTheyAreNamed) {
  const Cost none = cost_of(kernel(""));
  for (const char* registers :
       {".reg .b64 %r<1000000>;", ".reg .v4 .f32 %v<1000000>;",
        ".reg .b64 %a<1000000>; .reg .b64 %b<1000000>; .reg .b64 %c<1000000>;"}) {
    const Cost cost = cost_of(kernel(registers));
    EXPECT_THAT(cost.error, IsEmpty());
    EXPECT_EQ(cost.steps, none.steps) << registers;
    ASSERT_EQ(cost.program->kernels.size(), 1U);
    EXPECT_EQ(cost.program->kernels[0].code->places.size(),
              none.program->kernels[0].code->places.size());
  }
  const Cost used = cost_of(kernel(".reg .b32 %r<1000000>; mov.u32 %r999999, %tid.x;"));
  EXPECT_THAT(used.error, IsEmpty());
  EXPECT_LT(used.program->kernels[0].code->places.size(), 10U);
}

TEST(Bombs, RegistersOfAnExpandedCallCostNothingUntilTheyAreNamed) {
  const Cost cost =
      cost_of(".func f() { .reg .b64 %a<1000000>; }\n" + kernel(numbered("call f;\n", 2000)));
  EXPECT_THAT(cost.error, IsEmpty());
  EXPECT_LT(cost.steps, 10'000U);
}

TEST(Bombs, InitialValuesTakeWhatTheTextHoldsAndNotWhatTheVariableHolds) {
  const Cost cost = cost_of(".global .align 8 .b8 g[1073741824] = {1};\n" + kernel(""));
  EXPECT_THAT(cost.error, IsEmpty());
  ASSERT_EQ(cost.program->globals.size(), 1U);
  EXPECT_EQ(cost.program->globals[0].size, 1ULL << 30);
  EXPECT_EQ(cost.program->globals[0].initial.size(), 1U);
  expect_refused(".global .u8 x[2][549755813888] = {{}, {}};", limits::module_memory);
}

TEST(Bombs, CallsThatDoubleAreRefusedEvenIfTheyDoNothing) {
  expect_refused(
      ".func f40() {}\n" +
          [] {
            std::string functions;
            for (int i = 39; i >= 0; --i) {
              const std::string callee = "call f" + std::to_string(i + 1) + "; ";
              functions += ".func f" + std::to_string(i) + "() { " + callee + callee + "}\n";
            }
            return functions;
          }() +
          kernel("call f0;"),
      limits::module_steps);
}

TEST(Bombs, OneFunctionInManyKernelsIsCountedForTheWholeModule) {
  const std::string function =
      ".func f() { .reg .b32 %r<2>;\n" + numbered("mov.u32 %r0, %clock;\n", 1000) + "}\n";
  const Cost one = cost_of(function + kernel("call f;"));
  EXPECT_THAT(one.error, IsEmpty()) << "the control";
  const auto kernels = static_cast<unsigned>(limits::module_steps.most / one.steps);
  std::string text = function;
  for (unsigned i = 0; i <= kernels; ++i) text += kernel("call f;", "k" + std::to_string(i));
  expect_refused(text, limits::module_steps);
}

TEST(Bombs, AParameterThatIsPassedInMemoryIsCountedByItsSize) {
  expect_refused(".func f(.param .b8 x[1099511627776]) { .param .b8 y[8]; call f, (y); }\n" +
                     kernel(".param .b8 y[8]; call f, (y);"),
                 limits::module_steps);
}

TEST(Bombs, LabelsAreCountedInEachExpansion) {
  const std::string function = ".func f() {\n" + numbered("a#:\n", 100'000) + "ret; }\n";
  EXPECT_THAT(cost_of(function + kernel("call f;")).error, IsEmpty()) << "the control";
  expect_refused(function + kernel(numbered("call f; // #\n", 40)), limits::module_steps);
}

TEST(Bombs, CallsThroughPointersAreCountedByTheFunctionsThatMayBeMeant) {
  expect_refused(numbered(".func f#() { ret; }\n", 2000) + ".global .u64 t[2001] = {" +
                     numbered("f#,", 2000) + "0};\n" +
                     kernel(".reg .b64 %d<2>; ld.global.u64 %d0, [t]; q: .callprototype _ ();\n" +
                            numbered("call %d0, (), q;\n", 2000)),
                 limits::module_steps);
}

TEST(Bombs, AChainThatNothingReadsIsDroppedInOneGo) {
  // A kernel with rows: the addresses of its accesses are analysed.
  const auto text = [](unsigned links) {
    return kernel(
        ".reg .b32 %r<100000>; .reg .b64 %d<3>;\n"
        "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p]; mul.wide.u32 %d1, %r0, 4;\n"
        "add.s64 %d2, %d0, %d1; st.global.u32 [%d2], %r0;\n" +
        numbered("xor.b32 %r^, %r#, %r0;\n", links));
  };
  const Cost cost = cost_of(text(30'000));
  EXPECT_THAT(cost.error, IsEmpty());
  const Rows* rows = cost.program->kernels[0].code->rows.get();
  ASSERT_NE(rows, nullptr);
  EXPECT_LT(rows->body.steps.size(), 10U);
}

TEST(Bombs, ASwitchOfManyCasesIsRefusedByItsAnalysis) {
  const unsigned cases = 40'000;
  expect_refused(
      kernel(".reg .b32 %r<2>; mov.u32 %r0, %tid.x;\nt: .branchtargets " + numbered("L#,", cases) +
             "E;\nbrx.idx %r0, t;\n" + numbered("L#: bra E;\n", cases) + "E:"),
      limits::module_analysis);
  const Cost usual = cost_of(kernel(".reg .b32 %r<2>; mov.u32 %r0, %tid.x;\nt: .branchtargets " +
                                    numbered("L#,", 500) + "E;\nbrx.idx %r0, t;\n" +
                                    numbered("L#: bra E;\n", 500) + "E:"));
  EXPECT_THAT(usual.error, IsEmpty()) << "the control";
}

TEST(Bombs, LoopsInABadOrderWithManyLiveValuesAreRefusedByTheirAnalysis) {
  const unsigned loops = 6000;
  expect_refused(kernel(".reg .b32 %r<6001>; .reg .pred %p<2>;\nsetp.eq.u32 %p0, 1, 1;\n"
                        "bra L5999;\nL0:\n" +
                        numbered("L^: mov.u32 %r#, %tid.x;\n@%p0 bra L#;\n@%p0 bra M;\n", loops) +
                        "M:\n" + numbered("xor.b32 %r0, %r0, %r#;\n", loops)),
                 limits::module_analysis);
}

TEST(Bombs, ManyTablesAndBranchesCostTheirSum) {
  const unsigned few = 500, many = 2000;
  const auto text = [](unsigned count) {
    return kernel(".reg .b32 %r<2>; mov.u32 %r0, %tid.x;\n" +
                  numbered("t#: .branchtargets L#;\nbrx.idx %r0, t#;\nL#:\n", count));
  };
  const Cost small = cost_of(text(few)), large = cost_of(text(many));
  EXPECT_THAT(large.error, IsEmpty());
  EXPECT_LT(large.steps, 5 * small.steps);
}

TEST(Bombs, ValuesThatLiveAtTheSameTimeAreLimitedPerThread) {
  const unsigned values = limits::thread_registers.most / 8 + 1;
  expect_refused(kernel(".reg .b64 %r<100000>;\n" + numbered("mov.u64 %r#, %clock64;\n", values) +
                        "bar.sync 0;\n" + numbered("st.global.u64 [%r#], %r#;\n", values)),
                 limits::thread_registers);
}

TEST(Bombs, LocalAndSharedMemoryAreLimited) {
  expect_refused(kernel(".local .b8 x[1048576];"), limits::thread_local_memory);
  expect_refused(kernel(".shared .b8 x[16777217];"), limits::kernel_shared_memory);
  EXPECT_THAT(cost_of(kernel(".local .b8 x[1048575];")).error, IsEmpty()) << "the control";
  EXPECT_THAT(cost_of(kernel(".shared .b8 x[16777216];")).error, IsEmpty()) << "the control";
}

TEST(Bombs, AliasesCostWhatTheyCopy) {
  expect_refused(
      ".func f() {\n" + numbered("L#:\n", 3000) + "}\n" + numbered(".alias a#, f;\n", 40'000),
      limits::module_memory);
}

TEST(Bombs, ANameOfManyDigitsIsLookedUpByItsLastOnes) {
  std::string scopes;
  for (int i = 0; i < 60; ++i) scopes += "{ .reg .b32 %a<5>;\n";
  const Cost cost = cost_of(
      kernel(scopes + "mov.u32 %a1, %" + std::string(60'000, '1') + ";" + std::string(60, '}')));
  EXPECT_THAT(cost.error, HasSubstr("unknown register"));
  EXPECT_LT(cost.error.size(), 1000U) << "a message is shortened";
}

TEST(Bombs, BlocksOfACooperativeLaunchAreLimitedTogether) {
  // 64 lanes of 1 MiB each, in each block.
  const Cost cost = cost_of(kernel(".local .b8 x[1048000];"));
  ASSERT_NE(cost.program, nullptr) << cost.error;
  WorkerPool pool(1);
  const std::uint64_t parameter = 0;
  Launch launch;
  launch.kernel = &cost.program->kernels[0];
  launch.parameters = std::as_bytes(std::span(&parameter, 1));
  launch.cooperative = true;
  launch.block = {1, 1, 1};
  launch.grid = {2, 1, 1};
  EXPECT_EQ(pool.run(launch).fault, Fault::none) << "the control";
  launch.grid = {100, 1, 1};
  const Outcome outcome = pool.run(launch);
  EXPECT_EQ(outcome.fault, Fault::trap);
  EXPECT_THAT(outcome.message, HasSubstr("the limit launch_memory"));
}

TEST(Bombs, StepsOfAllProgramsOfTheProcessAreCountedWhileTheyLive) {
  const std::uint64_t before = process_steps().taken();
  Cost cost = cost_of(kernel("ret;"));
  EXPECT_EQ(process_steps().taken(), before + cost.steps);
  cost.program = nullptr;
  EXPECT_EQ(process_steps().taken(), before);
  EXPECT_EQ(&process_steps().limit(), &limits::process_steps);
}

TEST(Bombs, ASharedAllowanceRefusesBeyondItsLimitUntilSomethingComesBack) {
  constexpr limits::Limit few{"few", 10, "things", "use fewer"};
  limits::SharedAllowance allowance(few);
  auto six = allowance.take(6);
  ASSERT_NE(six, nullptr);
  EXPECT_EQ(allowance.take(5), nullptr);
  EXPECT_EQ(allowance.take(~0ULL), nullptr);
  EXPECT_EQ(allowance.taken(), 6U);
  six = nullptr;
  EXPECT_NE(allowance.take(10), nullptr);
}

TEST(Bombs, EachLimitHasItsRowInTheTableOfThePage) {
  for (const limits::Limit& limit : limits::all) {
    const std::string row = std::string("| `") + limit.name + "` | " + std::to_string(limit.most) +
                            " | " + limit.counted + " | " + limit.remedy + " |\n";
    EXPECT_NE(fixtures::software_device_page.find(row), std::string_view::npos) << row;
  }
}

}  // namespace
}  // namespace ctxbroker::software::exec
