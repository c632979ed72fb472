// SPDX-License-Identifier: Apache-2.0
// Kernels that print, on every engine and level.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include "exec/printout.hpp"
#include "support.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view print_ptx;
extern const std::string_view print_90_ptx;
extern const std::string_view print_debug_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

// A file of which the text is asked later.
class TextFile {
 public:
  TextFile() : file_(std::tmpfile(), std::fclose) {}
  std::FILE* get() const { return file_.get(); }
  std::string text() const {
    std::string all(static_cast<std::size_t>(std::ftell(file_.get())), '\0');
    std::rewind(file_.get());
    all.resize(std::fread(all.data(), 1, all.size(), file_.get()));
    return all;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

struct PrintRun {
  Outcome outcome;
  std::string printed;
};

PrintRun print_run(Device& device, const Config& config, const char* kernel, Dim3 grid, Dim3 block,
                   const Arguments& arguments, std::size_t capacity = 1 << 20) {
  const TextFile file;
  Printout printout(file.get(), capacity);
  PrintRun result;
  result.outcome = device.launch(config, kernel, grid, block, arguments, 0, nullptr, &printout);
  printout.flush();
  result.printed = file.text();
  return result;
}

// Runs `body` for each way of compiling the kernels, each engine and each level.
template <class F>
void in_each_way(F body) {
  for (const std::string_view ptx :
       {fixtures::print_ptx, fixtures::print_90_ptx, fixtures::print_debug_ptx}) {
    Device device{std::string(ptx)};
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config));
      body(device, config);
    }
  }
}

TEST(Print, TextsOfManyThreadsAreWhole) {
  std::vector<std::string> expected;
  for (int i = 0; i < 1000; ++i) {
    char line[64];
    std::snprintf(line, sizeof(line), "thread %d of 1000: %.2f", i, i * 0.25);
    expected.emplace_back(line);
  }
  std::sort(expected.begin(), expected.end());
  in_each_way([&](Device& device, const Config& config) {
    // A full buffer is written out, and nothing is lost.
    for (const std::size_t capacity : {1 << 20, 1000, 0}) {
      const PrintRun made =
          print_run(device, config, "lines", {10}, {128}, Arguments(1000), capacity);
      EXPECT_EQ(made.outcome.fault, Fault::none) << made.outcome.message;
      std::vector<std::string> lines;
      for (std::size_t at = 0; at < made.printed.size();) {
        const std::size_t end = std::min(made.printed.find('\n', at), made.printed.size());
        lines.push_back(made.printed.substr(at, end - at));
        at = end + 1;
      }
      std::sort(lines.begin(), lines.end());
      EXPECT_EQ(lines, expected);
    }
  });
}

TEST(Print, StringsMayLieAnywhereInDeviceMemory) {
  in_each_way([](Device& device, const Config& config) {
    auto* text = device.upload(std::vector<char>{'t', 'e', 'x', 't', 0});
    auto* returned = device.upload(std::vector<int>(4, -7));
    const PrintRun made =
        print_run(device, config, "strings", {1}, {33}, Arguments(text, returned));
    EXPECT_EQ(made.outcome.fault, Fault::none) << made.outcome.message;
    EXPECT_EQ(made.printed,
              "text literal locat\nglobal constant shared\n"
              "[    text|text    |te|      te|     text]\n[(null)||  (null)]\n");
    EXPECT_EQ(std::vector<int>(returned, returned + 4), (std::vector<int>{3, 3, 6, 3}));
  });
}

TEST(Print, WhatWasPrintedBeforeAFaultIsThere) {
  in_each_way([](Device& device, const Config& config) {
    const PrintRun crash =
        print_run(device, config, "crash_after", {1}, {1}, Arguments(std::uint64_t{16}));
    EXPECT_EQ(crash.outcome.fault, Fault::illegal_address);
    EXPECT_EQ(crash.printed, "before\n");
  });
}

TEST(Print, IllegalStringsAreFaults) {
  in_each_way([](Device& device, const Config& config) {
    const PrintRun illegal =
        print_run(device, config, "illegal_string", {1}, {1}, Arguments(std::uint64_t{16}));
    EXPECT_EQ(illegal.outcome.fault, Fault::illegal_address);
    EXPECT_NE(illegal.outcome.message.find("read of 1 byte at illegal address 0x10"),
              std::string::npos)
        << illegal.outcome.message;
    EXPECT_EQ(illegal.printed, "before\n");
    // No zero before the end of the memory.
    auto* endless = device.upload(std::vector<char>(300, 'x'));
    const PrintRun open = print_run(device, config, "illegal_string", {1}, {1}, Arguments(endless));
    EXPECT_EQ(open.outcome.fault, Fault::illegal_address);
    EXPECT_EQ(open.printed, "before\n");
  });
}

// The calls have forms that compilers do not write: results in registers or without a place, a
// guard, and arguments in global memory.
TEST(Print, CallsOfVprintfInAllFormsPrint) {
  const std::string before = R"(
.extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[4] = {37, 100, 10};
.global .align 8 .b8 none[8];
)";
  Device device(kernel_text(".param .u64 out", R"(
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [out]; mov.u64 %rd2, text; mov.u64 %rd3, none; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd4, %rd1;
    mov.u32 %r2, -9; setp.eq.u32 %p1, %r1, 3;
    @%p1 call (%r2), vprintf, (%rd2, %rd4);
    @%p1 call vprintf, (%rd2, %rd3);
    st.global.u32 [%rd4], %r2;
    ret;)",
                            before));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    auto* out = device.upload(std::vector<int>{10, 11, 12, 13, 14});
    const PrintRun made = print_run(device, config, "k", {1}, {5}, Arguments(out));
    EXPECT_EQ(made.outcome.fault, Fault::none) << made.outcome.message;
    EXPECT_EQ(made.printed, "13\n0\n");
    EXPECT_EQ(std::vector<int>(out, out + 5), (std::vector<int>{-9, -9, -9, 1, -9}));
  }
}

TEST(Print, PrintWithoutAPrintoutAnswersMinusTwo) {
  in_each_way([](Device& device, const Config& config) {
    auto* returned = device.upload(std::vector<int>(9, 7));
    const Outcome outcome =
        device.launch(config, "values", {1}, {1}, Arguments(42, -5000000000LL, 1.5F, returned));
    EXPECT_EQ(outcome.fault, Fault::none) << outcome.message;
    EXPECT_EQ(std::vector<int>(returned, returned + 9),
              (std::vector<int>{-2, -2, -2, -2, -2, -2, -2, -2, -1}));
  });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
