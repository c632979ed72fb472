// SPDX-License-Identifier: Apache-2.0
// What CUDA offers for halves: nvcc writes these functions with PTX of their own.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void multiply_add(const __half* a, const __half* b, const __half* c,
                                        __half* d, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) d[i] = __hfma(a[i], b[i], c[i]);
}

#if __CUDACC_VER_MAJOR__ >= 13  // older toolkits have fewer of these functions
extern "C" __global__ void halves(const __half* a, const __half* b, __half* o, float* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half x = a[i], y = b[i];
  __half r = __hadd(x, y);
  r = __hsub(r, __hmul(x, y));
  r = __hfma(x, y, r);
  r = __hdiv(r, __hadd(__habs(y), __float2half(1.0f)));
  r = __hadd_sat(r, x);
  r = __hfma_sat(r, x, y);
  r = __hneg(r);
  r = __hadd(r, hsqrt(__habs(x)));
  r = __hadd(r, hrsqrt(__hadd(__habs(x), __float2half(1.f))));
  r = __hadd(r, hrcp(__hadd(__habs(y), __float2half(2.f))));
  r = __hadd(r, hexp(x));
  r = __hadd(r, hexp2(x));
  r = __hadd(r, hexp10(__hmul(x, __float2half(0.1f))));
  r = __hadd(r, hlog(__habs(y)));
  r = __hadd(r, hlog2(__habs(y)));
  r = __hadd(r, hlog10(__habs(y)));
  r = __hadd(r, hsin(x));
  r = __hadd(r, hcos(y));
  r = __hadd(r, htanh_approx(x));
  r = __hadd(r, htanh(y));
  r = __hadd(r, hfloor(x));
  r = __hadd(r, hceil(x));
  r = __hadd(r, hrint(x));
  r = __hadd(r, htrunc(x));
  r = __hmax(r, x);
  r = __hmin(r, y);
  r = __hmax_nan(r, x);
  if (__hlt(x, y) || __hgeu(x, y) || __heq(x, y) || __hisnan(x) || __hisinf(y)) r = __hadd(r, x);
  r = __hadd(r, __int2half_rn(i));
  r = __hadd(r, __uint2half_rz(i));
  r = __hadd(r, __ll2half_rn(i));
  r = __hadd(r, __short2half_ru((short)i));
  r = __hadd(r, __double2half(0.3));
  f[i] = __half2float(r) + __half2int_rn(x) + __half2uint_rz(y) + (float)__half2ll_rd(x) +
         __half2short_ru(y) + (unsigned char)(float)__habs(x);
  r = __shfl_down_sync(0xffffffffu, r, 1);
  r = __shfl_xor_sync(0xffffffffu, r, 1);
  o[i] = r;
  __half z = __ldg(a + i);
  o[i] = __hadd(o[i], z);
  atomicAdd(o + (i & ~1), x);
}
extern "C" __global__ void pairs(const __half2* a, const __half2* b, __half2* o, unsigned* m,
                                 int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half2 x = a[i], y = b[i], r = __hadd2(x, y);
  r = __hfma2(x, y, r);
  r = __hmul2(r, x);
  r = __hsub2(r, y);
  r = __h2div(r, __hadd2(__habs2(y), __float2half2_rn(1.f)));
  r = __hneg2(r);
  r = __hadd2_sat(r, x);
  r = __hadd2(r, h2exp(x));
  r = __hadd2(r, h2sin(x));
  r = __hadd2(r, h2cos(y));
  r = __hadd2(r, h2log(__habs2(y)));
  r = __hadd2(r, h2sqrt(__habs2(y)));
  r = __hadd2(r, h2rsqrt(__habs2(y)));
  r = __hadd2(r, h2rcp(y));
  r = __hadd2(r, h2floor(x));
  r = __hadd2(r, h2rint(x));
  r = __hadd2(r, h2tanh_approx(x));
  r = __hmax2(r, x);
  r = __hmin2(r, y);
  r = __hadd2(r, __hlt2(x, y));
  r = __hadd2(r, __hgeu2(x, y));
  r = __hadd2(r, __hisnan2(x));
  m[i] = __hlt2_mask(x, y) ^ __hneu2_mask(x, y) ^ (__hbeq2(x, y) ? 1u : 0u) ^
         (__hbltu2(x, y) ? 2u : 0u);
  float2 f = __half22float2(r);
  r = __floats2half2_rn(f.y, f.x);
  r = __lowhigh2highlow(r);
  r = __halves2half2(__low2half(r), __high2half(x));
  r = __shfl_xor_sync(0xffffffffu, r, 2);
  o[i] = r;
  atomicAdd(o + (i & ~1), x);
  o[i] = __hcmadd(x, y, o[i]);
}
#if __CUDA_ARCH__ >= 800  // which has bf16
extern "C" __global__ void brains(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* o,
                                  float* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat16 x = a[i], y = b[i];
  __nv_bfloat16 r = __hadd(x, y);
  r = __hsub(r, __hmul(x, y));
  r = __hfma(x, y, r);
  r = __hdiv(r, __float2bfloat16(3.f));
  r = __habs(r);
  r = __hneg(r);
  r = __hmax(r, x);
  r = __hmin(r, y);
  r = __hadd(r, hexp(x));
  r = __hadd(r, hsin(x));
  r = __hadd(r, hsqrt(__habs(y)));
  r = __hadd(r, __int2bfloat16_rn(i));
  r = __hadd(r, __ll2bfloat16_rn(i));
  r = __hadd(r, __double2bfloat16(0.1));
  if (__hlt(x, y) || __hgeu(x, y)) r = __hadd(r, x);
  f[i] = __bfloat162float(r) + __bfloat162int_rn(x) + (float)__bfloat162ll_rz(y);
  __nv_bfloat162 p = __floats2bfloat162_rn(f[i], 2.f);
  p = __hfma2(p, p, p);
  p = __hadd2(p, __hlt2(p, p));
  r = __hadd(r, __low2bfloat16(p));
  r = __shfl_down_sync(0xffffffffu, r, 1);
  o[i] = r;
  atomicAdd(o + (i & ~1), x);
  atomicAdd((__nv_bfloat162*)o, p);
}
#endif
#endif
