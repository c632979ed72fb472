// SPDX-License-Identifier: Apache-2.0
// Calls through pointers, of virtual functions and of functions that call themselves. What a GPU
// answers where a call goes wrong was asked of an H100 with driver 580.
#include <cstdint>
#include <string_view>

#include "ptx/parser.hpp"
#include "support.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view calls_ptx;
extern const std::string_view calls_90_ptx;
extern const std::string_view calls_debug_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

constexpr std::uint32_t call_blocks = 2;

// Runs `check(device, configuration, threads of a block)` for each text that nvcc writes.
template <class Check>
void in_all_texts(Check check) {
  for (const std::string_view ptx :
       {fixtures::calls_ptx, fixtures::calls_90_ptx, fixtures::calls_debug_ptx}) {
    Device device{std::string(ptx)};
    for (const Config& config : all_configs()) {
      for (const std::uint32_t threads : {1U, 5U, 64U, 100U}) {
        SCOPED_TRACE(name_of(config) + ", " + std::to_string(threads) + " threads");
        check(device, config, threads);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void run(Device& device, const Config& config, const char* kernel, std::uint32_t threads,
         const Arguments& arguments) {
  const Outcome outcome = device.launch(config, kernel, {call_blocks}, {threads}, arguments);
  ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
}

using Binary = int (*)(int, int);
const Binary binaries[] = {[](int a, int b) { return a + b; }, [](int a, int b) { return a - b; },
                           [](int a, int b) { return a * b; }};

TEST(Calls, CallsThroughTablesReachTheirFunctions) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    const int n = 11;
    int* out = device.upload(std::vector<int>(call_blocks * threads));
    run(device, config, "tables", threads, Arguments(out, n));
    const Binary in_constant[] = {binaries[2], binaries[0], binaries[1]};
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      ASSERT_EQ(out[i], binaries[i % 3](i, n) + 1000 * in_constant[i % 5 % 3](n, i) +
                            binaries[i % 2 != 0 ? 0 : 1](7, i))
          << i;
    }
  });
}

TEST(Calls, DivergentCallsPartAndMeetAgain) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    const int n = 5;
    int* out = device.upload(std::vector<int>(call_blocks * threads));
    run(device, config, "divergent", threads, Arguments(out, n));
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      int sum = 0;
      for (int k = 0; k < i % 7; ++k) {
        if ((i + k) % 3 != 0) sum += binaries[(i + k) % 3](sum + k, n);
      }
      ASSERT_EQ(out[i], sum) << i;
    }
  });
}

struct Big {
  double values[3];
  int count;
  float scale;
  friend bool operator==(const Big&, const Big&) = default;
};

TEST(Calls, StructuresArePassedAndReturned) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    Big* out = device.upload(std::vector<Big>(call_blocks * threads, {{1, 2, 3}, 4, 5}));
    run(device, config, "structures", threads, Arguments(out));
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      const int narrow = (i + 128) % 256 - 128;  // as a signed char
      const Big wanted = i % 2 != 0 ? Big{{1.0 + narrow, 2.0 + 3 * i, 3}, 4 + i, 0.25F}
                                    : Big{{1, 2.0 - narrow, 3.0 - 3 * i}, 4 - 2 * i, 0.5F};
      ASSERT_TRUE(out[i] == wanted) << i;
    }
  });
}

TEST(Calls, VirtualCallsReachObjectsOfAnEarlierLaunch) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    char* memory = device.upload(std::vector<char>(std::size_t{16} * call_blocks * threads));
    int* out = device.upload(std::vector<int>(call_blocks * threads));
    run(device, config, "make_shapes", threads, Arguments(memory));
    run(device, config, "measure_shapes", threads, Arguments(memory, out, 3));
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      ASSERT_EQ(out[i], i % 3 == 0 ? 3 * i * i + 4 : 3 * (i * i * 355 / 113)) << i;
    }
  });
}

int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

TEST(Calls, RecursiveCallsCompute) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    int* out = device.upload(std::vector<int>(std::size_t{4} * call_blocks * threads));
    run(device, config, "recursion", threads, Arguments(out));
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      ASSERT_EQ(out[4 * i], fibonacci(i % 11)) << i;
      ASSERT_EQ(out[4 * i + 1], 2 * (i % 4) + 3) << i;
      ASSERT_EQ(out[4 * i + 2], i % 9 % 2 == 0 ? 1 : 0) << i;
      ASSERT_EQ(out[4 * i + 3], i % 13 * (i % 13 + 1) / 2) << i;
    }
  });
}

TEST(Calls, EachCallHasItsOwnLocalVariables) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    int* out = device.upload(std::vector<int>(call_blocks * threads));
    const int depth = 7;
    run(device, config, "nested", threads, Arguments(out, depth));
    for (int i = 0; i < static_cast<int>(call_blocks * threads); ++i) {
      // own = {n, below[0], below[1], n * n}; the innermost adds own[1] + own[2], all others
      // n + n * n. below[0] is the caller's n, below[1] the caller's below[0].
      int sum = 1 + 2;
      for (int n = 1; n <= depth; ++n) sum += n + n * n;
      ASSERT_EQ(out[i], sum) << i;
    }
  });
}

TEST(Calls, APointerThatAKernelGaveIsAnArgumentOfAnother) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t) {
    std::uint64_t* pointers = device.upload(std::vector<std::uint64_t>(2));
    int* out = device.upload(std::vector<int>(1));
    run(device, config, "give_pointers", 1, Arguments(pointers));
    EXPECT_NE(pointers[0], pointers[1]);
    run(device, config, "call_pointer", 1, Arguments(out, pointers[0]));
    EXPECT_EQ(*out, 8);
    run(device, config, "call_pointer", 1, Arguments(out, pointers[1]));
    EXPECT_EQ(*out, 2);
  });
}

// A null pointer is CUDA_ERROR_INVALID_PC on an H100. Others may do anything there.
TEST(Calls, APointerToNoFunctionIsAFault) {
  Device device{std::string(fixtures::calls_ptx)};
  int* out = device.upload(std::vector<int>(1));
  std::uint64_t* pointers = device.upload(std::vector<std::uint64_t>(2));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    run(device, config, "give_pointers", 1, Arguments(pointers));
    const std::uint64_t good = pointers[0];
    for (const std::uint64_t bad :
         {std::uint64_t{0}, good + 1, good + 8, good - (1 << 20), good + (1 << 20),
          reinterpret_cast<std::uint64_t>(out), ~std::uint64_t{0}}) {
      const Outcome outcome = device.launch(config, "call_pointer", {1}, {70}, Arguments(out, bad));
      EXPECT_EQ(outcome.fault, Fault::invalid_pc) << std::hex << bad;
      EXPECT_NE(outcome.message.find("which is no function of this module"), std::string::npos)
          << outcome.message;
    }
  }
}

// 700 on an H100, whether the stack is left by one frame or by many.
TEST(Calls, AStackThatIsTooSmallIsAFault) {
  in_all_texts([](Device& device, const Config& config, std::uint32_t threads) {
    int* out = device.upload(std::vector<int>(call_blocks * threads));
    for (const int depth : {1000, 1 << 30}) {
      const Outcome outcome =
          device.launch(config, "nested", {call_blocks}, {threads}, Arguments(out, depth));
      EXPECT_EQ(outcome.fault, Fault::stack_overflow);
      EXPECT_NE(outcome.message.find("CU_LIMIT_STACK_SIZE"), std::string::npos) << outcome.message;
    }
  });
}

constexpr std::string_view double_it =
    ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %a; ld.param.u32 %a, [a];"
    " add.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }\n"
    ".func (.param .b32 r) g(.param .b32 a) { .reg .b32 %a; ld.param.u32 %a, [a];"
    " add.u32 %a, %a, 1; st.param.b32 [r], %a; ret; }\n"
    ".func (.param .b64 r) h(.param .b64 a) { st.param.b64 [r], 0; ret; }\n"
    ".global .u64 table[3] = {f, g, h};\n";

std::string call_text(const std::string& call, const std::string& before = "") {
  return kernel_text(".param .u64 out, .param .u32 which", R"(
    .reg .b64 %o, %f, %t; .reg .b32 %i, %a; .reg .pred %p;
    ld.param.u64 %o, [out]; ld.param.u32 %i, [which]; mov.u32 %a, 20;
    setp.lt.u32 %p, %i, 10;
    mov.u64 %t, table; mul.wide.u32 %f, %i, 8; add.u64 %t, %t, %f; ld.global.u64 %f, [%t];
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %a;
)" + call + "\n ld.param.b32 %a, [y]; } st.global.u32 [%o], %a; ret;",
                     std::string(double_it) + before);
}

void expect_call(const std::string& call, std::uint32_t which, Fault fault, std::uint32_t wanted) {
  Device device{call_text(call)};
  auto* out = device.upload(std::vector<std::uint32_t>(1));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(call + ", " + name_of(config));
    *out = 0;
    const Outcome outcome = device.launch(config, "k", {1}, {1}, Arguments(out, which));
    EXPECT_EQ(outcome.fault, fault) << outcome.message;
    EXPECT_EQ(*out, wanted);
  }
}

TEST(Calls, CallOutsideOfPrototypeOrTargetsIsAFault) {
  const std::string with_prototype = "p: .callprototype (.param .b32 _) _ (.param .b32 _);\n";
  expect_call(with_prototype + "call (y), %f, (x), p;", 0, Fault::none, 40);
  expect_call(with_prototype + "call (y), %f, (x), p;", 1, Fault::none, 21);
  expect_call("t: .calltargets f, g;\n call (y), %f, (x), t;", 1, Fault::none, 21);
  // A GPU goes on with whatever is in its registers here. The software device reports the call
  // instead.
  expect_call(with_prototype + "call (y), %f, (x), p;", 2, Fault::invalid_pc, 0);
  expect_call("t: .calltargets f;\n call (y), %f, (x), t;", 1, Fault::invalid_pc, 0);
}

TEST(Calls, AGuardedCallIsMadeByTheLanesThatItHoldsFor) {
  const std::string head =
      "p: .callprototype (.param .b32 _) _ (.param .b32 _);\n st.param.b32 [y], 3;\n";
  expect_call(head + "@%p call (y), %f, (x), p;", 1, Fault::none, 21);
  expect_call(head + "@!%p call (y), %f, (x), p;", 1, Fault::none, 3);
}

// A lane that overwrites its own stack may jump to any place in its kernel, but not out of it.
TEST(Calls, AnOverwrittenReturnAddressIsAFault) {
  const std::string text = kernel_text(".param .u64 out, .param .u32 which", R"(
    .reg .b64 %o, %f; .reg .b32 %a; ld.param.u64 %o, [out]; ld.global.u64 %f, [table];
    { p: .callprototype () _ (); call %f, p; } ret;)",
                                       R"(
    .func wild() { .local .b64 own; .reg .b64 %b<3>; mov.u64 %b1, own; st.local.u64 [%b1+-8], 78; ret; }
    .global .u64 table = wild;)");
  Device device{text};
  auto* out = device.upload(std::vector<std::uint32_t>(1));
  for (const Config& config : all_configs()) {
    const Outcome outcome = device.launch(config, "k", {1}, {100}, Arguments(out, 0U));
    EXPECT_EQ(outcome.fault, Fault::invalid_pc) << outcome.message;
  }
}

TEST(Calls, AModulesPointerIsNoFunctionOfAnother) {
  Device one{std::string(fixtures::calls_ptx)}, other{std::string(fixtures::calls_ptx)};
  std::uint64_t* pointers = one.upload(std::vector<std::uint64_t>(2));
  run(one, {}, "give_pointers", 1, Arguments(pointers));
  int* out = other.upload(std::vector<int>(1));
  const Outcome outcome = other.launch({}, "call_pointer", {1}, {1}, Arguments(out, pointers[0]));
  EXPECT_EQ(outcome.fault, Fault::invalid_pc) << outcome.message;
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
