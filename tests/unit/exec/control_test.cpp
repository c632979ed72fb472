// SPDX-License-Identifier: Apache-2.0
// Branches, barriers, memory spaces and calls.
#include <numeric>

#include "ptx/parser.hpp"
#include "support.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u32 = std::uint32_t;

// A kernel whose body has the thread's number in %i and the address of out[%i] in %o; `p` is free.
std::string text(const std::string& body, const std::string& before = "") {
  return kernel_text(".param .u64 out, .param .u32 n", R"(
    .reg .b32 %r<20>; .reg .b32 %i; .reg .b64 %o, %rd<20>; .reg .pred %p<10>; .reg .f32 %f<10>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %i, %r0, %r1, %r2;
    ld.param.u64 %o, [out]; mul.wide.u32 %rd0, %i, 4; add.s64 %o, %o, %rd0;
)" + body,
                     before);
}

using Reference = std::vector<u32> (*)(u32 count, u32 block);

// Runs the kernel everywhere, with blocks of odd and even sizes.
void expect(const std::string& ptx, Reference reference,
            const std::vector<u32>& blocks = {1, 7, 64, 100, 256}, u32 dynamic_shared = 0,
            u32 grid = 3) {
  Device device(ptx);
  for (const u32 block : blocks) {
    const u32 count = block * grid;
    u32* out = device.upload(std::vector<u32>(count));
    const std::vector<u32> expected = reference(count, block);
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config) + ", blocks of " + std::to_string(block));
      std::fill_n(out, count, 0xdeadbeefU);
      const Outcome outcome =
          device.launch(config, "k", {grid}, {block}, Arguments(out, count), dynamic_shared);
      ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
      ASSERT_EQ(std::vector<u32>(out, out + count), expected);
      EXPECT_GT(outcome.thread_instructions, count);
    }
  }
}

template <class F>
std::vector<u32> map(u32 count, F f) {
  std::vector<u32> values(count);
  for (u32 i = 0; i < count; ++i) values[i] = f(i);
  return values;
}

TEST(Control, DivergentLoopsEndEachInItsTime) {
  expect(text(R"(
    and.b32 %r3, %i, 31; mov.u32 %r4, 0;
  LOOP: setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE;
    add.u32 %r4, %r4, %r3; sub.u32 %r3, %r3, 1; bra.uni LOOP;
  DONE: st.global.u32 [%o], %r4; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) { return (i & 31) * ((i & 31) + 1) / 2; });
         });
}

TEST(Control, NestedDivergenceWithEarlyExits) {
  expect(text(R"(
    and.b32 %r3, %i, 7; mov.u32 %r4, 0; mov.u32 %r5, 0;
    st.global.u32 [%o], 7777;
    setp.eq.u32 %p1, %r3, 5; @%p1 exit;
  OUTER: setp.ge.u32 %p2, %r5, %r3; @%p2 bra END;
    mov.u32 %r6, 0;
  INNER: setp.gt.u32 %p3, %r6, %r5; @%p3 bra NEXT;
    add.u32 %r4, %r4, 1; add.u32 %r6, %r6, 1;
    setp.eq.u32 %p4, %r4, 20; @%p4 ret;
    bra INNER;
  NEXT: add.u32 %r5, %r5, 1; bra OUTER;
  END: st.global.u32 [%o], %r4; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             const u32 n = i & 7;
             u32 total = 0;
             if (n == 5) return 7777U;
             for (u32 a = 0; a < n; ++a) {
               for (u32 b = 0; b <= a; ++b) {
                 if (++total == 20) return 7777U;
               }
             }
             return total;
           });
         });
}

TEST(Control, BlocksOutOfOrderAndGuardedInstructions) {
  expect(text(R"(
    and.b32 %r3, %i, 3; setp.eq.u32 %p1, %r3, 1; setp.eq.u32 %p2, %r3, 2;
    mov.u32 %r4, 10; @%p1 mov.u32 %r4, 20; @!%p2 add.u32 %r4, %r4, 1;
    @%p1 bra FAR; bra NEAR;
  BACK: st.global.u32 [%o], %r4; ret;
  FAR: add.u32 %r4, %r4, 100; @%p2 trap; bra BACK;
  NEAR: @%p2 add.u32 %r4, %r4, 1000; bra BACK;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             const u32 which = i & 3;
             u32 v = which == 1 ? 20 : 10;
             if (which != 2) ++v;
             return which == 1 ? v + 100 : which == 2 ? v + 1000 : v;
           });
         });
}

TEST(Control, BranchTables) {
  expect(text(R"(
    and.b32 %r3, %i, 3;
  TARGETS: .branchtargets A, B, C, D;
    brx.idx %r3, TARGETS;
  A: mov.u32 %r4, 11; bra END;
  B: mov.u32 %r4, 22; bra END;
  C: mov.u32 %r4, 33; bra END;
  D: mov.u32 %r4, 44;
  END: st.global.u32 [%o], %r4; ret;)"),
         [](u32 count, u32) { return map(count, [](u32 i) { return ((i & 3) + 1) * 11; }); });
}

TEST(Control, IrreducibleLoops) {
  // Two entries into one loop.
  expect(text(R"(
    and.b32 %r3, %i, 1; mov.u32 %r4, 0; setp.eq.u32 %p1, %r3, 0; @%p1 bra SECOND;
  FIRST: add.u32 %r4, %r4, 1;
  SECOND: add.u32 %r4, %r4, 10; setp.lt.u32 %p2, %r4, 50; @%p2 bra FIRST;
    st.global.u32 [%o], %r4; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             u32 v = (i & 1) == 0 ? 0 : 1;
             for (v += 10; v < 50;) v += 11;
             return v;
           });
         });
}

TEST(Control, SharedMemoryReversal) {
  expect(text(R"(
    .shared .align 4 .b8 fixed[1024];
    mov.u32 %r3, fixed; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4;
    st.shared.u32 [%r5], %i; bar.sync 0;
    sub.u32 %r6, %r1, 1; sub.u32 %r6, %r6, %r2; shl.b32 %r6, %r6, 2; add.u32 %r6, %r3, %r6;
    ld.shared.u32 %r7, [%r6]; st.global.u32 [%o], %r7; ret;)"),
         [](u32 count, u32 block) {
           return map(count, [=](u32 i) { return i / block * block + block - 1 - i % block; });
         });
}

TEST(Control, DynamicSharedMemoryAndGenericAddresses) {
  // The dynamic part lies behind the static one; a generic address reaches it too.
  expect(
      text(R"(
    .shared .align 4 .u32 fixed[3];
    mov.u32 %r3, dynamic; mov.u32 %r4, fixed; sub.u32 %r8, %r3, %r4;
    cvt.u64.u32 %rd1, %r3; cvta.shared.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r2, 4; add.s64 %rd2, %rd2, %rd3;
    st.u32 [%rd2], %i; bar.sync 0;
    xor.b32 %r5, %r2, 1; setp.ge.u32 %p1, %r5, %r1; selp.u32 %r5, %r2, %r5, %p1;
    shl.b32 %r5, %r5, 2; add.u32 %r6, %r3, %r5; ld.shared.u32 %r7, [%r6];
    cvta.to.shared.u64 %rd4, %rd2; ld.shared.u32 %r9, [%rd4]; sub.u32 %r9, %r9, %i;
    add.u32 %r7, %r7, %r9; mad.lo.u32 %r7, %r8, 100000, %r7;
    st.global.u32 [%o], %r7; ret;)",
           ".extern .shared .align 16 .b8 dynamic[];"),
      [](u32 count, u32 block) {
        return map(count, [=](u32 i) {
          const u32 t = i % block, other = (t ^ 1) < block ? t ^ 1 : t;
          return i / block * block + other + 16 * 100000;
        });
      },
      {1, 7, 64, 100, 256}, 1024);
}

TEST(Control, TreeReductionWithDivergentBarrierLoop) {
  expect(text(R"(
    mov.u32 %r3, buffer; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4;
    add.u32 %r6, %i, 1; st.shared.u32 [%r5], %r6;
    mov.u32 %r7, 128;
  STEP: bar.sync 0;
    add.u32 %r8, %r2, %r7; setp.lt.u32 %p1, %r2, %r7; setp.lt.and.u32 %p2, %r8, %r1, %p1;
    @!%p2 bra SKIP;
    shl.b32 %r9, %r7, 2; add.u32 %r10, %r5, %r9; ld.shared.u32 %r11, [%r10];
    ld.shared.u32 %r12, [%r5]; add.u32 %r12, %r12, %r11; st.shared.u32 [%r5], %r12;
  SKIP: shr.u32 %r7, %r7, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra STEP;
    bar.sync 0; ld.shared.u32 %r13, [buffer]; st.global.u32 [%o], %r13; ret;)",
              ".shared .align 4 .b8 buffer[1024];"),
         [](u32 count, u32 block) {
           return map(count, [=](u32 i) {
             const u32 first = i / block * block;
             u32 sum = 0;
             for (u32 k = 0; k < block; ++k) sum += first + k + 1;
             return sum;
           });
         });
}

TEST(Control, BarrierInBothArmsOfABranch) {
  // Odd and even threads wait at different instructions, for the same barrier.
  expect(text(R"(
    mov.u32 %r3, buffer; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r2;
    and.b32 %r6, %r2, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra EVEN;
    barrier.sync 0; mov.u32 %r7, 1000; bra END;
  EVEN: barrier.sync 0; mov.u32 %r7, 2000;
  END: sub.u32 %r8, %r1, 1; shl.b32 %r8, %r8, 2; add.u32 %r8, %r3, %r8;
    ld.shared.u32 %r9, [%r8]; add.u32 %r9, %r9, %r7; st.global.u32 [%o], %r9; ret;)",
              ".shared .align 4 .b8 buffer[1024];"),
         [](u32 count, u32 block) {
           return map(count, [=](u32 i) { return block - 1 + (i % block % 2 == 0 ? 2000 : 1000); });
         });
}

TEST(Control, ExitedThreadsDoNotHoldUpABarrier) {
  expect(text(R"(
    st.global.u32 [%o], 1; and.b32 %r3, %r2, 3; setp.eq.u32 %p1, %r3, 3; @%p1 ret;
    bar.sync 0; st.global.u32 [%o], 2; ret;)"),
         [](u32 count, u32 block) {
           return map(count, [=](u32 i) { return i % block % 4 == 3 ? 1U : 2U; });
         });
}

TEST(Control, NamedBarriersOfPartOfTheBlock) {
  // The first 64 threads hand values over barrier 1; the others do not take part.
  expect(text(R"(
    mov.u32 %r3, buffer; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4;
    mov.u32 %r7, 5; setp.ge.u32 %p1, %r2, 64; @%p1 bra END;
    st.shared.u32 [%r5], %r2; bar.sync 1, 64;
    xor.b32 %r6, %r4, 252; add.u32 %r6, %r3, %r6; ld.shared.u32 %r7, [%r6];
  END: st.global.u32 [%o], %r7; ret;)",
              ".shared .align 4 .b8 buffer[1024];"),
         [](u32 count, u32 block) {
           return map(count, [=](u32 i) { return i % block < 64 ? 63 - i % block : 5; });
         },
         {64, 100, 256});
}

TEST(Control, BarrierVotes) {
  expect(text(R"(
    and.b32 %r3, %r2, 7; setp.eq.u32 %p1, %r3, 0;
    bar.red.popc.u32 %r4, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1;
    selp.u32 %r5, 1000, 0, %p2; selp.u32 %r6, 10000, 0, %p3;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%o], %r4; ret;)"),
         [](u32 count, u32 block) {
           return map(count, [=](u32) {
             return (block + 7) / 8 + (block == 1 ? 1000 : 0) + (block > 1 ? 10000 : 0);
           });
         });
}

TEST(Control, LocalMemory) {
  // Squares written downwards, read at an index of the thread's own, through both address kinds.
  expect(text(R"(
    .local .align 8 .b8 stack[64]; .reg .b64 %SP, %SPL;
    mov.u64 %SPL, stack; cvta.local.u64 %SP, %SPL;
    mov.u32 %r3, 15;
  FILL: mul.lo.u32 %r4, %r3, %r3; add.u32 %r4, %r4, %i; mul.wide.u32 %rd1, %r3, 4;
    add.u64 %rd2, %SPL, %rd1; st.local.u32 [%rd2], %r4;
    sub.u32 %r3, %r3, 1; setp.ge.s32 %p1, %r3, 0; @%p1 bra FILL;
    and.b32 %r5, %i, 15; mul.wide.u32 %rd3, %r5, 4; add.u64 %rd4, %SP, %rd3;
    ld.u32 %r6, [%rd4]; cvta.to.local.u64 %rd5, %rd4; ld.local.u32 %r7, [%rd5];
    ld.local.v4.u32 {%r8, %r9, %r10, %r11}, [%SPL+16]; sub.u32 %r11, %r11, %i;
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r11; st.global.u32 [%o], %r6; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) { return 2 * ((i & 15) * (i & 15) + i) + 49; });
         });
}

TEST(Control, ModuleVariables) {
  Device device(text(R"(
    and.b32 %r3, %i, 3; mul.wide.u32 %rd1, %r3, 4; mov.u64 %rd2, table; add.s64 %rd2, %rd2, %rd1;
    ld.const.u32 %r4, [%rd2]; ld.global.u32 %r5, [counter+4]; add.u32 %r4, %r4, %r5;
    cvta.global.u64 %rd3, counter; ld.u32 %r6, [%rd3]; add.u32 %r4, %r4, %r6;
    st.global.u32 [%o], %r4; setp.eq.u32 %p1, %i, 0; @%p1 st.global.u32 [result], 99; ret;)",
                     ".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n"
                     ".global .align 4 .u32 counter[2] = {3, 7};\n.global .u32 result;\n"));
  u32* out = device.upload(std::vector<u32>(100));
  for (const Config& config : all_configs()) {
    ASSERT_EQ(device.launch(config, "k", {1}, {100}, Arguments(out, 100U)).fault, Fault::none);
    for (u32 i = 0; i < 100; ++i) ASSERT_EQ(out[i], ((i & 3) + 1) * 10 + 10);
    u32 result = 0;
    std::memcpy(&result, device.global("result"), 4);
    EXPECT_EQ(result, 99U);
  }
  EXPECT_EQ(device.program().globals.size(), 3U);
  EXPECT_TRUE(device.program().globals[0].constant);
}

TEST(Control, CallsAreExpanded) {
  const char* functions = R"(
.func (.param .b32 result) twice(.param .b32 value) {
  .reg .b32 %r<3>; .reg .pred %p;
  ld.param.u32 %r0, [value]; setp.gt.u32 %p, %r0, 100; @%p bra BIG;
  add.u32 %r1, %r0, %r0; st.param.b32 [result], %r1; ret;
BIG: st.param.b32 [result], %r0; ret;
}
.func (.reg .u32 sum) add3(.reg .u32 a, .param .align 4 .b8 pair[8]) {
  .reg .b32 %r<4>;
  ld.param.u32 %r0, [pair]; ld.param.u32 %r1, [pair+4];
  add.u32 sum, a, %r0; add.u32 sum, sum, %r1; ret;
})";
  expect(text(R"(
    mov.u32 %r3, 0;
    { .param .b32 v; .param .b32 r; st.param.b32 [v], %i; call.uni (r), twice, (v);
      ld.param.b32 %r4, [r]; }
    { .param .b32 v; .param .b32 r; st.param.b32 [v], %r4; call (r), twice, (v);
      ld.param.b32 %r5, [r]; }
    { .param .align 4 .b8 two[8]; st.param.b32 [two], %r4; st.param.b32 [two+4], 5;
      setp.lt.u32 %p1, %i, 50; mov.u32 %r6, 1; @%p1 call (%r6), add3, (%r5, two); }
    st.global.u32 [%o], %r6; ret;)",
              functions),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             const auto twice = [](u32 v) { return v > 100 ? v : 2 * v; };
             return i < 50 ? twice(twice(i)) + twice(i) + 5 : 1;
           });
         });
}

TEST(Control, SpecialRegistersIn3D) {
  Device device(kernel_text(".param .u64 out", R"(
    .reg .b32 %r<20>; .reg .b64 %rd<4>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z;
    mad.lo.u32 %r6, %r2, %r4, %r1; mad.lo.u32 %r6, %r6, %r3, %r0;
    mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z;
    mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y;
    mad.lo.u32 %r12, %r9, %r11, %r8; mad.lo.u32 %r12, %r12, %r10, %r7;
    mul.lo.u32 %r13, %r3, %r4; mul.lo.u32 %r13, %r13, %r5; mad.lo.u32 %r14, %r12, %r13, %r6;
    ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r14, 8; add.s64 %rd0, %rd0, %rd1;
    shl.b32 %r15, %r9, 8; or.b32 %r15, %r15, %r2; mov.u32 %r16, %laneid;
    st.global.v2.u32 [%rd0], {%r15, %r16}; ret;)"));
  const u32 threads = 5 * 3 * 4, blocks = 2 * 3 * 2;
  u32* out = device.upload(std::vector<u32>(2 * threads * blocks));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    std::fill_n(out, 2 * threads * blocks, 0U);
    const Outcome outcome = device.launch(config, "k", {2, 3, 2}, {5, 3, 4}, Arguments(out));
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    for (u32 i = 0; i < threads * blocks; ++i) {
      const u32 t = i % threads, b = i / threads;
      ASSERT_EQ(out[2 * i], (b / 6) << 8 | t / 15);
      ASSERT_EQ(out[2 * i + 1], t % 32);
    }
  }
}

TEST(Control, AtomicsAcrossBlocksAndInSharedMemory) {
  Device device(text(R"(
    ld.param.u64 %rd1, [out]; mov.u32 %r3, cell; setp.eq.u32 %p1, %r2, 0;
    @%p1 st.shared.u32 [%r3], 0; bar.sync 0;
    atom.shared.add.u32 %r4, [%r3], 2; bar.sync 0; ld.shared.u32 %r5, [%r3];
    @%p1 red.global.add.u32 [%rd1], %r5; atom.global.max.u32 %r6, [%rd1+4], %i;
    red.global.add.f32 [%rd1+8], 0f3F000000; atom.global.cas.b32 %r7, [%rd1+12], 0, 5;
    atom.global.inc.u32 %r8, [%rd1+16], 9; ret;)",
                     ".shared .u32 cell;"),
                4);
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    u32* out = device.upload(std::vector<u32>(8));
    const Outcome outcome = device.launch(config, "k", {200}, {100}, Arguments(out, 0U));
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    EXPECT_EQ(out[0], 200U * 100 * 2);
    EXPECT_EQ(out[1], 200U * 100 - 1);
    float sum = 0;
    std::memcpy(&sum, out + 2, 4);
    EXPECT_EQ(sum, 10000.0F);
    EXPECT_EQ(out[3], 5U);
    EXPECT_EQ(out[4], 20000U % 10);
  }
}

TEST(Control, SpinLockInsideAWarp) {
  // Every lane takes the lock once: lanes that spin must let its holder run.
  Device device(text(R"(
    ld.param.u64 %rd1, [out];
  TRY: atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra TRY;
    ld.volatile.global.u32 %r4, [%rd1+4]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [%rd1+4], %r4;
    membar.gl; atom.global.exch.b32 %r5, [%rd1], 0; ret;)"));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    u32* out = device.upload(std::vector<u32>(2));
    const Outcome outcome = device.launch(config, "k", {4}, {100}, Arguments(out, 0U));
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    EXPECT_EQ(out[1], 400U);
  }
}

TEST(Control, WarpOperations) {
  expect(text(R"(
    mov.u32 %r3, %laneid; mov.u32 %r10, 0;
    shfl.sync.bfly.b32 %r4|%p1, %i, 1, 31, -1; shfl.sync.idx.b32 %r5, %r3, 3, 31, -1;
    shfl.sync.up.b32 %r6|%p2, %r3, 1, 0, -1; shfl.sync.down.b32 %r7, %r3, 2, 0x181f, -1;
    setp.lt.u32 %p3, %r3, 10; vote.sync.ballot.b32 %r8, %p3, -1; vote.sync.any.pred %p4, %p3, -1;
    vote.sync.all.pred %p5, %p3, -1; redux.sync.add.s32 %r9, %r3, -1;
    and.b32 %r11, %r3, 1; match.any.sync.b32 %r12, %r11, -1;
    add.u32 %r10, %r4, %r5; add.u32 %r10, %r10, %r6; add.u32 %r10, %r10, %r7;
    xor.b32 %r10, %r10, %r8; add.u32 %r10, %r10, %r9; xor.b32 %r10, %r10, %r12;
    @%p4 add.u32 %r10, %r10, 100000; @%p5 add.u32 %r10, %r10, 200000; @%p2 add.u32 %r10, %r10, 1;
    st.global.u32 [%o], %r10; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             const u32 lane = i % 32;
             u32 v = (i ^ 1) + 3 + (lane == 0 ? 0 : lane - 1);
             v += lane % 8 + 2 <= 7 ? lane + 2 : lane;
             v ^= 0x3ff;
             v += 496;
             v ^= lane % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU;
             return v + 100000 + (lane == 0 ? 0 : 1);
           });
         },
         {32, 64, 128});
}

TEST(Control, ShuffleWaitsForLanesThatTookAnotherPath) {
  expect(text(R"(
    mov.u32 %r3, %laneid; and.b32 %r4, %r3, 1; setp.eq.u32 %p1, %r4, 0; mov.u32 %r5, %r3;
    @%p1 bra SKIP;
  WORK: add.u32 %r5, %r5, 100; setp.lt.u32 %p2, %r5, 500; @%p2 bra WORK;
  SKIP: shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1; st.global.u32 [%o], %r6; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             u32 v = (i ^ 1) % 32;
             if (v % 2 == 1) {
               do v += 100;
               while (v < 500);
             }
             return v;
           });
         },
         {32, 64});
}

// A destination gets 0 where its source lane is not active or has exited; whether the source is in
// range is told all the same.
TEST(Control, ShuffleFromLanesThatTakeNoPart) {
  expect(text(R"(
    mov.u32 %r3, %laneid; add.u32 %r4, %r3, 100; mov.u32 %r6, 5;
    setp.ne.u32 %p3, %r3, %r3; setp.ge.u32 %p1, %r3, 24; @%p1 exit;
    setp.lt.u32 %p2, %r3, 10;
    @%p2 shfl.sync.down.b32 %r6|%p3, %r4, 4, 31, 0xffffff;
    shfl.sync.idx.b32 %r7, %r4, 30, 31, 0xffffff; add.u32 %r6, %r6, %r7;
    shfl.sync.up.b32 %r7, %r4, 2, 0, 0xffffff; add.u32 %r6, %r6, %r7;
    @%p3 add.u32 %r6, %r6, 1000;
    st.global.u32 [%o], %r6; ret;)"),
         [](u32 count, u32) {
           return map(count, [](u32 i) {
             const u32 lane = i % 32;
             if (lane >= 24) return 0xdeadbeefU;  // as it was
             const u32 down = lane >= 10 ? 5 : 1000 + (lane + 4 < 10 ? lane + 104 : 0);
             return down + (lane < 2 ? lane + 100 : lane + 98);
           });
         },
         {32, 64, 128});
}

TEST(Control, ReductionsOfAWarp) {
  const std::pair<const char*, u32> operations[] = {
      {"add.s32", u32(-16)}, {"add.u32", u32(-16)}, {"min.s32", u32(-16)},
      {"max.s32", 15},       {"min.u32", 0},        {"max.u32", ~0U},
      {"and.b32", 0},        {"or.b32", ~0U},       {"xor.b32", 0}};
  for (const auto& [operation, expected] : operations) {
    SCOPED_TRACE(operation);
    Device device(text(std::string("mov.u32 %r3, %laneid; sub.u32 %r3, %r3, 16; redux.sync.") +
                       operation + " %r4, %r3, -1; st.global.u32 [%o], %r4; ret;"));
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config));
      u32* out = device.upload(std::vector<u32>(128));
      const Outcome outcome = device.launch(config, "k", {1}, {128}, Arguments(out, 0U));
      ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
      EXPECT_EQ(std::vector<u32>(out, out + 128), std::vector<u32>(128, expected));
    }
  }
  for (const std::string operation : {"add.b32", "and.s32", "min.b32", "min.f32"}) {
    EXPECT_THROW(compile(text("redux.sync." + operation + " %r4, %r3, -1;")), ptx::SyntaxError);
  }
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
