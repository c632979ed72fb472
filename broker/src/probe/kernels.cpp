#include "probe/kernels.hpp"

namespace ctxbroker::detail {

const char* const probe_kernels = R"(
.version 7.0
.target sm_70
.address_size 64

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

.visible .entry add_one(.param .u64 address)
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [%rd2];
  add.s32 %r2, %r1, 1;
  st.global.u32 [%rd2], %r2;
  ret;
}

.visible .entry stop()
{
  trap;
  ret;
}
)";

}  // namespace ctxbroker::detail
