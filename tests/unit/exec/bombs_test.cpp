// SPDX-License-Identifier: Apache-2.0
// Small texts that ask for much: each is refused by the name of its limit, or costs what its text
// costs. Costs are counted by the limits and never by the clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
  std::uint32_t line = 0;  // of the error
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
    cost.line = error.line();
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
    EXPECT_LE(cost.steps, none.steps + 1) << registers;
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
  const auto first = static_cast<std::uint32_t>(2 + std::count(head.begin(), head.end(), '\n'));
  for (const char* variable : {"\n\n.local .b8 x[1048576];", "\n\n.shared .b8 x[16777217];"}) {
    EXPECT_EQ(cost_of(kernel(variable)).line, first + 2) << variable;
  }
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
  limits::Share one(allowance);
  {
    limits::Share six(allowance);
    EXPECT_TRUE(six.take(2) && six.take(4));
    EXPECT_FALSE(one.take(5));
    EXPECT_FALSE(one.take(~0ULL));
    EXPECT_EQ(allowance.taken(), 6U);
  }
  EXPECT_TRUE(one.take(10));
}

// Bytes that the process has for programs and modules beyond those before.
class ProcessMemory {
 public:
  std::uint64_t more() const { return ptx::process_memory().taken() - before_; }

 private:
  std::uint64_t before_ = ptx::process_memory().taken();
};

TEST(Bombs, MemoryOfAllProgramsOfTheProcessIsCountedWhileTheyLive) {
  constexpr unsigned many = 10'000;
  const struct {
    std::string what, text;
    std::uint64_t least;
  } texts[] = {
      {"kernels that do nothing", numbered(".entry k#() {}\n", many), many * sizeof(Code)},
      {"initial values", ".global .b64 x[10000] = {" + numbered("#,", many - 1) + "1};", many * 8},
      {"initial values that are addresses",
       ".global .b64 x[10000] = {" + numbered("x,", many - 1) + "x};", many * sizeof(Relocation)},
      {"variables", numbered(".global .b8 x#;", many), many * sizeof(GlobalVariable)},
      {"files", numbered(".file # \"a\"\n", many), many * sizeof(std::string)},
      {"lines", numbered(".loc 1 #\n", many), many * 2 * sizeof(ptx::SourcePosition)},
      {"steps", kernel(".reg .b32 a;" + numbered("mov.u32 a, %clock;\n", many)),
       many * sizeof(Step)},
  };
  for (const auto& [what, text, least] : texts) {
    const ProcessMemory process;
    Cost cost = cost_of(text);
    EXPECT_THAT(cost.error, IsEmpty()) << what;
    EXPECT_GE(process.more(), least) << what;
    EXPECT_LT(process.more(), cost.memory) << what;
    cost.program = nullptr;
    EXPECT_EQ(process.more(), 0U) << what;
  }
}

TEST(Bombs, ModulesThatAreBeingLoadedAreCountedToo) {
  const ProcessMemory process;
  {
    ptx::ModuleBudget budget;
    ptx::parse(head + numbered(".entry k#() {}\n", 10'000), budget);
    EXPECT_GE(process.more(), budget.memory.taken());
  }
  EXPECT_EQ(process.more(), 0U);
}

TEST(Bombs, AProcessWithoutMemoryLeftRefusesAModuleUntilAnotherEnds) {
  const std::string text = numbered(".entry k#() {}\n", 10'000);
  {
    limits::Share others(ptx::process_memory());
    ASSERT_TRUE(
        others.take(limits::process_memory.most - ptx::process_memory().taken() - 2 * limits::mib));
    expect_refused(text, limits::process_memory);
    EXPECT_THAT(cost_of(kernel("")).error, IsEmpty()) << "the control";
  }
  EXPECT_THAT(cost_of(text).error, IsEmpty());
}

TEST(Bombs, EmptyKernelsAreLimitedByWhatTheirProgramTakes) {
  const Cost cost = cost_of(numbered(".entry k#() {}\n", 1000));
  EXPECT_GE(cost.memory, 1000 * (sizeof(ptx::Function) + sizeof(Kernel) + sizeof(Code)));
}

// Bytes that a process has taken at its peak, which compiles the text.
std::uint64_t peak_of(const std::string& text) {
  const pid_t child = fork();
  if (child == 0) {
    const Cost cost = cost_of(text);
    _exit(cost.error.empty() ? 0 : 1);
  }
  rusage usage{};
  EXPECT_EQ(wait4(child, nullptr, 0, &usage), child);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * limits::kib;
}

// The parsed text takes 30 MB, and all its vectors at once would take 160 MB more.
TEST(Bombs, VectorsAreExpandedOneInstructionAtATime) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
  const std::string wide = "{" + numbered("v1,", 899) + "v1}";
  const auto text = [&](const char* registers) {
    return kernel(registers + numbered("ld.v4.b32 " + wide + ",[p];\n", 300));
  };
  const std::uint64_t scalars = peak_of(text(".reg .b32 v<2>;\n"));
  const std::uint64_t vectors = peak_of(text(".reg .v4 .b32 v<2>;\n"));
  EXPECT_LT(vectors, scalars + 50 * limits::mib);
  EXPECT_THAT(cost_of(text(".reg .v4 .b32 v<2>;\n")).error, HasSubstr("900 elements"));
}

TEST(Bombs, ScopesAndTheirNamesAreCounted) {
  const std::uint64_t none = cost_of(kernel("")).memory;
  EXPECT_GE(cost_of(kernel(numbered("{}", 1000))).memory, none + 1000 * 48);
  EXPECT_GE(cost_of(kernel(numbered("{a:}", 1000))).memory, none + 1000 * 300);
  EXPECT_THAT(cost_of(kernel(std::string(65, '{'))).error, HasSubstr("the limit ptx_nesting"));
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
