// SPDX-License-Identifier: Apache-2.0
// Votes, matches and reductions whose member masks name a part of the warp.
#include "ptx/parser.hpp"
#include "support.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using u32 = std::uint32_t;

// A kernel whose body has the thread's number in %i, its lane in %r0, out[%i]'s address in %o, and
// i * 2654435761 >> 13 & 255 in %r1.
std::string warp_text(const std::string& body, const std::string& before = "") {
  return kernel_text(".param .u64 out", R"(
    .reg .b32 %r<30>; .reg .b32 %i; .reg .b64 %o, %rd<5>; .reg .pred %p<10>;
    mov.u32 %i, %tid.x; mov.u32 %r0, %laneid;
    ld.param.u64 %o, [out]; mul.wide.u32 %rd0, %i, 4; add.s64 %o, %o, %rd0;
    mul.lo.u32 %r1, %i, -1640531535; shr.u32 %r1, %r1, 13; and.b32 %r1, %r1, 255;
)" + body,
                     before);
}
u32 hashed(u32 i) {
  return i * 2654435761U >> 13 & 255;
}

template <class Reference>
void expect_lanes(const std::string& ptx, const std::vector<u32>& blocks, Reference reference) {
  Device device(ptx);
  for (const u32 block : blocks) {
    u32* out = device.upload(std::vector<u32>(block));
    std::vector<u32> expected(block);
    for (u32 i = 0; i < block; ++i) expected[i] = reference(i);
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config) + ", a block of " + std::to_string(block));
      std::fill_n(out, block, 0xdeadbeefU);
      const Outcome outcome = device.launch(config, "k", {1}, {block}, Arguments(out));
      ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
      EXPECT_EQ(std::vector<u32>(out, out + block), expected);
    }
  }
}

// Calls f(k) for the threads of the tile of `size` that i is in.
template <class F>
void each_of_tile(u32 i, u32 size, F f) {
  for (u32 k = i / size * size; k < i / size * size + size; ++k) f(k);
}

TEST(WarpMasks, VotesTakeTheLanesThatTheMaskNames) {
  expect_lanes(warp_text(R"(
    and.b32 %r2, %r0, 24; mov.u32 %r3, 255; shl.b32 %r3, %r3, %r2;
    and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 1; setp.gt.u32 %p2, %r1, 20;
    vote.sync.ballot.b32 %r5, %p1, %r3;
    vote.sync.any.pred %p3, !%p2, %r3; vote.sync.all.pred %p4, %p2, %r3;
    vote.sync.uni.pred %p5, %p2, %r3;
    selp.u32 %r6, 1, 0, %p3; selp.u32 %r7, 2, 0, %p4; selp.u32 %r8, 4, 0, %p5;
    shr.u32 %r5, %r5, %r2; shl.b32 %r5, %r5, 3;
    or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7; or.b32 %r5, %r5, %r8;
    st.global.u32 [%o], %r5; ret;)"),
               {8, 64, 96}, [](u32 i) {
                 u32 ballot = 0, large = 0;
                 each_of_tile(i, 8, [&](u32 k) {
                   ballot |= (hashed(k) & 1) << k % 8;
                   large += hashed(k) > 20;
                 });
                 return ballot << 3 | u32{large < 8} | u32{large == 8} << 1 |
                        u32{large == 0 || large == 8} << 2;
               });
}

TEST(WarpMasks, ReductionsAndMatchesTakeTheLanesThatTheMaskNames) {
  expect_lanes(warp_text(R"(
    and.b32 %r2, %r0, 16; mov.u32 %r3, 0xffff; shl.b32 %r3, %r3, %r2;
    redux.sync.add.u32 %r4, %r1, %r3; redux.sync.max.u32 %r5, %r1, %r3;
    and.b32 %r6, %r1, 3; match.any.sync.b32 %r7, %r6, %r3; popc.b32 %r7, %r7;
    shr.u32 %r8, %r0, 4; cvt.u64.u32 %rd1, %r8; match.all.sync.b64 %r9|%p1, %rd1, %r3;
    selp.u32 %r9, 1000000, 0, %p1;
    mad.lo.u32 %r4, %r5, 10000, %r4; xor.b32 %r4, %r4, %r7; add.u32 %r4, %r4, %r9;
    st.global.u32 [%o], %r4; ret;)"),
               {16, 64, 128}, [](u32 i) {
                 u32 sum = 0, most = 0, same = 0;
                 each_of_tile(i, 16, [&](u32 k) {
                   sum += hashed(k);
                   most = std::max(most, hashed(k));
                   same += (hashed(k) & 3) == (hashed(i) & 3);
                 });
                 return ((most * 10000 + sum) ^ same) + 1000000;
               });
}

// The groups are as the values fall, and their masks lie where a result goes.
TEST(WarpMasks, PeersThatAMatchFoundReduceAmongThemselves) {
  expect_lanes(warp_text(R"(
    and.b32 %r2, %r1, 3; match.any.sync.b32 %r3, %r2, -1;
    redux.sync.add.u32 %r4, %r1, %r3; and.b32 %r5, %r1, 8; setp.ne.u32 %p1, %r5, 0;
    vote.sync.ballot.b32 %r3, %p1, %r3; popc.b32 %r3, %r3;
    mad.lo.u32 %r4, %r3, 100000, %r4; st.global.u32 [%o], %r4; ret;)"),
               {32, 64}, [](u32 i) {
                 u32 sum = 0, with = 0;
                 each_of_tile(i, 32, [&](u32 k) {
                   if ((hashed(k) & 3) != (hashed(i) & 3)) return;
                   sum += hashed(k);
                   with += (hashed(k) & 8) != 0;
                 });
                 return with * 100000 + sum;
               });
}

// while (tile.any(v > 0)) { s += popc(tile.ballot(v & 1)); if (v) --v; }
TEST(WarpMasks, TilesLeaveALoopEachInItsTime) {
  expect_lanes(warp_text(R"(
    and.b32 %r2, %r0, 28; mov.u32 %r3, 15; shl.b32 %r3, %r3, %r2;
    and.b32 %r4, %r1, 15; mov.u32 %r5, 0;
  LOOP: setp.ne.u32 %p1, %r4, 0; vote.sync.any.pred %p2, %p1, %r3; @!%p2 bra DONE;
    and.b32 %r6, %r4, 1; setp.ne.u32 %p3, %r6, 0;
    vote.sync.ballot.b32 %r7, %p3, %r3; popc.b32 %r7, %r7; add.u32 %r5, %r5, %r7;
    @%p1 sub.u32 %r4, %r4, 1; bra LOOP;
  DONE: st.global.u32 [%o], %r5; ret;)"),
               {4, 64, 96}, [](u32 i) {
                 u32 sum = 0;
                 each_of_tile(i, 4, [&](u32 k) { sum += ((hashed(k) & 15) + 1) / 2; });
                 return sum;
               });
}

TEST(WarpMasks, LanesThatExitedAreNotWaitedFor) {
  expect_lanes(warp_text(R"(
    and.b32 %r2, %r0, 24; mov.u32 %r3, 255; shl.b32 %r3, %r3, %r2;
    and.b32 %r4, %r0, 7; st.global.u32 [%o], 5; setp.eq.u32 %p1, %r4, 3; @%p1 exit;
    redux.sync.add.u32 %r5, %r1, %r3; st.global.u32 [%o], %r5; ret;)"),
               {8, 64}, [](u32 i) {
                 if (i % 8 == 3) return 5U;
                 u32 sum = 0;
                 each_of_tile(i, 8, [&](u32 k) { sum += k % 8 == 3 ? 0 : hashed(k); });
                 return sum;
               });
}

// PTX leaves the result open. Here, such a lane is on its own.
TEST(WarpMasks, ALaneThatItsMaskLeavesOutIsOnItsOwn) {
  expect_lanes(warp_text(R"(
    setp.lt.u32 %p1, %r0, 8; selp.b32 %r3, 0xff, 0, %p1;
    redux.sync.add.u32 %r5, %r1, %r3; vote.sync.ballot.b32 %r6, 1, %r3;
    popc.b32 %r6, %r6; mad.lo.u32 %r5, %r6, 100000, %r5; st.global.u32 [%o], %r5; ret;)"),
               {32, 64}, [](u32 i) {
                 if (i % 32 >= 8) return 100000 + hashed(i);
                 u32 sum = 0;
                 each_of_tile(i, 8, [&](u32 k) { sum += hashed(k); });
                 return 800000 + sum;
               });
}

// Lane 3 waits for lane 4 when lanes 0 to 2 come to where they need it. Lane 4 is at the end of the
// loop, and comes back.
TEST(WarpMasks, AGroupWaitsForALaneThatWaitsInAnotherGroup) {
  expect_lanes(warp_text(R"(
    mov.u32 %r9, 0; mov.u32 %r8, 0; mov.u32 %r7, 0;
    setp.lt.u32 %p2, %r0, 3; setp.eq.u32 %p3, %r0, 4; selp.u32 %r6, 2, 1, %p3;
    setp.gt.u32 %p1, %r0, 4; @%p1 bra END;
  AGAIN: setp.eq.u32 %p4, %r7, 0; and.pred %p4, %p4, %p3; @%p4 bra NEXT;
    @%p2 bra GROUP;
    vote.sync.ballot.b32 %r9, 1, 0x18; @%p3 bra NEXT;
  GROUP: redux.sync.add.u32 %r8, %r0, 0xf;
  NEXT: add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, %r6; @%p5 bra AGAIN;
  END: add.u32 %r8, %r8, %r9; st.global.u32 [%o], %r8; ret;)"),
               {32, 64}, [](u32 i) {
                 return i % 32 > 4 ? 0U : (i % 32 < 4 ? 6U : 0U) + (i % 32 > 2 ? 0x18U : 0U);
               });
}

// Lanes 8 to 15 are not complete before lane 15 sees what lane 0 writes behind the vote.
TEST(WarpMasks, AGroupThatIsCompleteGoesOnWhileItsNeighbourWaits) {
  expect_lanes(warp_text(R"(
    mov.u32 %r2, flag; setp.gt.u32 %p1, %r0, 15; setp.eq.u32 %p2, %r0, 15;
    setp.eq.u32 %p3, %r0, 0; setp.lt.u32 %p4, %r0, 8; selp.b32 %r3, 0xff, 0xff00, %p4;
    mov.u32 %r5, 0; @%p3 st.volatile.shared.u32 [%r2], 0; bar.sync 0;
    @%p1 bra END; @%p2 bra SPIN;
  VOTE: vote.sync.ballot.b32 %r5, 1, %r3;
    @%p3 st.volatile.shared.u32 [%r2], 1;
    bra END;
  SPIN: ld.volatile.shared.u32 %r4, [%r2]; setp.eq.u32 %p5, %r4, 0; @%p5 bra SPIN; bra VOTE;
  END: st.global.u32 [%o], %r5; ret;)",
                         ".shared .align 4 .b32 flag;"),
               {32}, [](u32 i) { return i < 8    ? 0xffU
                                        : i < 16 ? 0xff00U
                                                 : 0U; });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
