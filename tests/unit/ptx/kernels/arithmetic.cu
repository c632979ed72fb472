// SPDX-License-Identifier: Apache-2.0
// Many opcodes: mathematics, bits, warps, half precision, wide integers.
#include <cuda_fp16.h>

extern "C" __global__ void doubles(double* x) {
  x[0] = pow(x[1], x[2]) + erf(x[3]) + lgamma(x[4]) + j0(x[5]) + sinpi(x[6]);
  sincos(x[7], x + 8, x + 9);
}

extern "C" __global__ void floats(float* x) {
  x[0] = tgammaf(x[1]) + __expf(x[2]) + rsqrtf(x[3]) + __fdividef(x[4], x[5]) + cbrtf(x[6]);
  x[1] = fmaf(x[7], x[8], x[9]) + rintf(x[10]) + truncf(x[11]) + copysignf(x[12], x[13]);
}

extern "C" __global__ void integers(long long* x, unsigned* y) {
  x[0] = x[1] / x[2] + x[3] % x[4] + __mul64hi(x[5], x[6]) + (x[7] >> 3);
  y[0] = __brev(y[1]) + __popc(y[2]) + __clz(y[3]) + __ffs(y[4]) + __byte_perm(y[5], y[6], y[7]);
  y[1] = __funnelshift_l(y[8], y[9], y[10]) + __dp4a(y[1], y[2], y[3]) + __usad(y[4], y[5], y[6]);
}

extern "C" __global__ void warps(unsigned* x) {
  const unsigned all = 0xffffffffu;
  x[0] = __ballot_sync(all, x[1] > 3) + __match_any_sync(all, x[2]) + __activemask();
  x[1] = __shfl_xor_sync(all, x[3], 5) + __shfl_up_sync(all, x[4], 1) + __all_sync(all, x[5]);
  atomicCAS(x + 6, 1u, 2u);
  atomicMax(x + 7, x[8]);
  __threadfence();
}

extern "C" __global__ void halves(__half2* x, unsigned char* y) {
  x[0] = __hfma2(x[1], x[2], x[3]);
  x[4] = __float22half2_rn(make_float2(y[0], y[1]));
  *reinterpret_cast<uchar4*>(y + 4) = make_uchar4(y[2], y[3], y[2], y[3]);
}
