// SPDX-License-Identifier: Apache-2.0
// Accesses to elements that follow one another from thread to thread, whose addresses are known
// without calculating one for each thread.
#include "exec/code.hpp"
#include "support.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// The thread's number is in %i, and out's address in %o.
std::string row_text(const std::string& body) {
  return kernel_text(".param .u64 out, .param .u64 in, .param .u32 n", R"(
    .reg .b32 %r<20>; .reg .b32 %i, %n; .reg .b64 %o, %a, %rd<20>; .reg .pred %p<4>; .reg .b16 %h<4>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.s32 %i, %r0, %r1, %r2;
    ld.param.u64 %o, [out]; ld.param.u64 %a, [in]; ld.param.u32 %n, [n];
)" + body);
}

bool has_rows(const Device& device) {
  return device.program().find_kernel("k")->code->rows != nullptr;
}

// Runs the kernel everywhere over `n` threads in blocks of several sizes, one and two-dimensional.
void expect_everywhere(const std::string& body, u32 n, const std::vector<u32>& in,
                       const std::vector<u32>& expected) {
  Device device(row_text(body));
  EXPECT_TRUE(has_rows(device));
  const u32* const from = device.upload(in);
  for (const Dim3 block : {Dim3{1}, Dim3{9}, Dim3{64}, Dim3{100}, Dim3{256}, Dim3{1024}}) {
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config) + ", blocks of " + std::to_string(block.x));
      u32* const out = device.upload(std::vector<u32>(expected.size(), 0xdeadbeef));
      const Outcome outcome =
          device.launch(config, "k", {(n + block.x - 1) / block.x}, block, Arguments(out, from, n));
      ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
      ASSERT_EQ(std::vector<u32>(out, out + expected.size()), expected);
    }
  }
}

std::vector<u32> numbers(u32 count, u32 first = 0, u32 step = 1) {
  std::vector<u32> values(count);
  for (u32 i = 0; i < count; ++i) values[i] = first + step * i;
  return values;
}

TEST(Rows, ElementsOfEachWidthAreMovedAsRows) {
  const std::string begin = "setp.ge.s32 %p1, %i, %n; @%p1 bra END;";
  expect_everywhere(
      begin + R"(mul.wide.s32 %rd1, %i, 4; add.s64 %rd2, %a, %rd1; add.s64 %rd3, %o, %rd1;
                    ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, 7; st.global.u32 [%rd3], %r3;
                    END: ret;)",
      1000, numbers(1000), numbers(1000, 7));
  expect_everywhere(begin + R"(cvt.s64.s32 %rd4, %i; shl.b64 %rd1, %rd4, 4; add.s64 %rd2, %rd1, %a;
                    add.s64 %rd3, %o, %rd1; ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd2];
                    st.global.v4.u32 [%rd3], {%r6, %r5, %r4, %r3}; END: ret;)",
                    3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                    {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8});
  expect_everywhere(begin + R"(cvt.u64.u32 %rd1, %i; add.s64 %rd2, %rd1, %a; add.s64 %rd3, %rd1, %o;
                    ld.global.u8 %h1, [%rd2+1]; st.global.u8 [%rd3], %h1; END: ret;)",
                    7, {0x33221100, 0x77665544, 0}, {0x44332211, 0xde776655});
  expect_everywhere(begin + R"(mad.wide.u32 %rd2, %i, 8, %a; mad.wide.u32 %rd3, %i, 8, %o;
                    ld.global.u64 %rd4, [%rd2]; st.global.u64 [%rd3], %rd4; END: ret;)",
                    200, numbers(400), numbers(400));
}

TEST(Rows, RowsTouchOnlyTheThreadsThatTakePart) {
  std::vector<u32> expected(500, 0xdeadbeef);
  for (u32 i = 0; i < 500; i += 3) expected[i] = 5 * i;
  expect_everywhere(
      R"(setp.ge.s32 %p1, %i, %n; @%p1 bra END; rem.u32 %r3, %i, 3; setp.ne.u32 %p2, %r3, 0;
            mul.wide.s32 %rd1, %i, 4; add.s64 %rd2, %a, %rd1; add.s64 %rd3, %o, %rd1;
            @%p2 bra END; ld.global.u32 %r3, [%rd2]; st.global.u32 [%rd3], %r3; END: ret;)",
      500, numbers(500, 0, 5), expected);
}

// The index passes 2^32 within a block. Only the threads beyond write, to the array's beginning.
TEST(Rows, IndexThatWrapsGivesTheSameElements) {
  const std::string wrap = R"(setp.ge.s32 %p1, %i, %n; @%p1 bra END;
      setp.lt.u32 %p2, %i, 40; @%p2 bra END; add.u32 %r3, %i, -40;)";
  std::vector<u32> expected = numbers(300, 40);
  expected[298] = expected[299] = 0xdeadbeef;
  expect_everywhere(
      wrap + R"(sub.u32 %r4, %i, 40; mul.wide.u32 %rd1, %r4, 4; add.s64 %rd3, %o, %rd1;
                   st.global.u32 [%rd3], %i; END: ret;)",
      338, {0}, expected);
  // The same in signed numbers: from 2^31 - 40 on, with the address brought back.
  expect_everywhere(wrap + R"(add.u32 %r4, %i, 2147483608; mul.wide.s32 %rd1, %r4, 4;
                   add.s64 %rd2, %o, %rd1; add.s64 %rd3, %rd2, 8589934592;
                   st.global.u32 [%rd3], %i; END: ret;)",
                    338, {0}, expected);
}

// The first and the last thread are where they would be in a row of elements, others are not.
TEST(Rows, BlocksOfThreeDimensions) {
  Device device(row_text(R"(mov.u32 %r3, %tid.y; mov.u32 %r4, %tid.z; mul.wide.u32 %rd1, %r2, 4;
                            mul.wide.u32 %rd2, %r3, 64; mul.wide.u32 %rd4, %r4, 16;
                            add.s64 %rd5, %o, %rd1; add.s64 %rd6, %rd5, %rd2;
                            add.s64 %rd3, %rd6, %rd4; st.global.u32 [%rd3], %r3; ret;)"));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    u32* const out = device.upload(std::vector<u32>(64));
    const Outcome outcome = device.launch(config, "k", {1}, {4, 4, 4}, Arguments(out, out, 0U));
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    for (u32 i = 0; i < 64; ++i) ASSERT_EQ(out[i], i / 16);
  }
}

TEST(Rows, AFaultNamesItsThread) {
  Device device(row_text(R"(mul.wide.u32 %rd1, %i, 4; add.s64 %rd3, %o, %rd1;
                        st.global.u32 [%rd3], %i; ret;)"));
  EXPECT_TRUE(has_rows(device));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    u32* const out = device.upload(std::vector<u32>(300));
    const Outcome outcome = device.launch(config, "k", {4}, {100}, Arguments(out, out, 0U));
    EXPECT_EQ(outcome.fault, Fault::illegal_address);
    EXPECT_NE(outcome.message.find("block (3, 0, 0)"), std::string::npos) << outcome.message;
    EXPECT_EQ(std::vector<u32>(out, out + 300), numbers(300));
  }
}

TEST(Rows, LoopsHaveNoRows) {
  EXPECT_FALSE(has_rows(Device(row_text(R"(mul.wide.u32 %rd1, %i, 4; add.s64 %rd3, %o, %rd1;
      AGAIN: st.global.u32 [%rd3], %i; add.u32 %i, %i, 1; setp.lt.u32 %p1, %i, 9; @%p1 bra AGAIN;
      ret;)"))));
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
