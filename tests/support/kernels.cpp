// SPDX-License-Identifier: Apache-2.0
#include "support/kernels.hpp"

#include <array>
#include <string_view>

namespace ctxbroker {
namespace {

// Begins with an empty line, as every part does.
constexpr std::string_view head = R"(
.version 7.0
.target sm_70
.address_size 64
)";

constexpr std::string_view variables = R"(
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
)";

constexpr std::string_view fill = R"(
.visible .entry fill(.param .u64 address, .param .u32 value, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  cvta.to.global.u64 %rd4, %rd1;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd4, %rd2;
  st.global.u32 [%rd3], %r1;
DONE:
  ret;
}
)";

constexpr std::string_view add_one = R"(
.visible .entry add_one(.param .u64 address, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r2, [count];
  cvta.to.global.u64 %rd4, %rd1;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd4, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.s32 %r8, %r7, 1;
  st.global.u32 [%rd3], %r8;
DONE:
  ret;
}
)";

constexpr std::string_view hold = R"(
.visible .entry hold(.param .u64 flag)
{
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
AGAIN:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}
)";

constexpr std::string_view crash = R"(
.visible .entry crash()
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

constexpr std::string_view trap = R"(
.visible .entry trap()
{
  trap;
  ret;
}
)";

constexpr std::string_view bump = R"(
.visible .entry bump()
{
  .reg .b32 %r<3>;
  ld.global.u32 %r1, [counter];
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  ret;
}
)";

constexpr std::string_view empty = R"(
.visible .entry empty()
{
  ret;
}
)";

constexpr std::string_view shared_sum = R"(
.visible .entry shared_sum(.param .u64 in, .param .u64 out, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
  .shared .align 4 .b8 cells[4096];
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [count];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd5, %r2, 4;
  add.s64 %rd6, %rd3, %rd5;
  ld.global.u32 %r3, [%rd6];
  shl.b32 %r4, %r2, 2;
  mov.u32 %r5, cells;
  add.s32 %r6, %r5, %r4;
  st.shared.u32 [%r6], %r3;
  bar.sync 0;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra DONE;
  mov.u32 %r7, 0;
  mov.u32 %r8, 0;
  mov.u32 %r9, %r5;
NEXT:
  ld.shared.u32 %r10, [%r9];
  add.s32 %r7, %r7, %r10;
  add.s32 %r9, %r9, 4;
  add.s32 %r8, %r8, 1;
  setp.lt.u32 %p1, %r8, %r1;
  @%p1 bra NEXT;
  st.global.u32 [%rd4], %r7;
DONE:
  ret;
}
)";

template <const std::string_view&... parts>
constexpr auto join() {
  std::array<char, (parts.size() + ...) + 1> text{};
  auto end = text.begin();
  const auto append = [&](std::string_view part) {
    for (const char one : part) *end++ = one;
  };
  (append(parts), ...);
  return text;
}

template <const std::string_view&... parts>
constexpr auto joined = join<parts...>();

}  // namespace

const char* const crash_ptx = joined<head, crash>.data();
const char* const empty_ptx = joined<head, empty>.data();
const char* const fill_ptx = joined<head, fill>.data();
const char* const hold_ptx = joined<head, hold>.data();
const char* const trap_ptx = joined<head, trap>.data();
const char* const kernels_ptx =
    joined<head, variables, fill, add_one, hold, crash, trap, bump, empty, shared_sum>.data();

}  // namespace ctxbroker
