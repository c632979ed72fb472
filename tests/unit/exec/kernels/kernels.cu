// SPDX-License-Identifier: Apache-2.0
// Kernels as plug-ins have them. kernels_test.cpp computes the same in plain C++.
#include <cstdint>

#define KERNEL extern "C" __global__ void

static __device__ int global_index() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

KERNEL gain(float* x, float g, int n) {
  const int i = global_index();
  if (i < n) x[i] *= g;
}

KERNEL fir(const float* __restrict__ x, const float* __restrict__ h, float* y, int n, int taps) {
  const int i = global_index();
  if (i >= n) return;
  float sum = 0;
  for (int k = 0; k < taps; ++k) sum += x[i + k] * h[k];
  y[i] = sum;
}

KERNEL biquad(const float* x, float* y, int frames, int channels) {
  const int c = global_index();
  if (c >= channels) return;
  float z1 = 0, z2 = 0;
  for (int i = 0; i < frames; ++i) {
    const float in = x[i * channels + c];
    const float out = 0.2f * in + z1;
    z1 = 0.3f * in + z2 - -0.4f * out;
    z2 = 0.1f * in - 0.2f * out;
    y[i * channels + c] = out;
  }
}

KERNEL blur(const uchar4* in, uchar4* out, int width, int height) {
  __shared__ uchar4 tile[18][18];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  for (int j = threadIdx.y; j < 18; j += 16) {
    for (int i = threadIdx.x; i < 18; i += 16) {
      const int sx = min(max(int(blockIdx.x * 16) + i - 1, 0), width - 1);
      const int sy = min(max(int(blockIdx.y * 16) + j - 1, 0), height - 1);
      tile[j][i] = in[sy * width + sx];
    }
  }
  __syncthreads();
  if (x >= width || y >= height) return;
  int r = 0, g = 0, b = 0, a = 0;
  for (int j = 0; j < 3; ++j) {
    for (int i = 0; i < 3; ++i) {
      const uchar4 p = tile[threadIdx.y + j][threadIdx.x + i];
      r += p.x;
      g += p.y;
      b += p.z;
      a += p.w;
    }
  }
  out[y * width + x] = make_uchar4(r / 9, g / 9, b / 9, a / 9);
}

KERNEL tone(const float* x, float4* y, float p, int n) {
  const int i = global_index();
  if (i < n) y[i] = make_float4(powf(fabsf(x[i]), p), expf(x[i]), sinf(x[i]), logf(fabsf(x[i])));
}

KERNEL far_angles(const float* x, float2* y, int n) {
  const int i = global_index();
  if (i < n) sincosf(x[i] * 1e8f, &y[i].x, &y[i].y);
}

KERNEL doubles(const double* x, double* y, int n) {
  const int i = global_index();
  if (i >= n) return;
  y[4 * i] = exp(x[i]);
  y[4 * i + 1] = pow(fabs(x[i]), 2.5);
  y[4 * i + 2] = sqrt(fabs(x[i])) / (x[i] + 30);
  y[4 * i + 3] = sin(x[i]);
}

KERNEL hash(uint64_t* out, uint32_t seed, int n) {
  const int i = global_index();
  if (i >= n) return;
  uint64_t h = 14695981039346656037ull ^ seed;
  for (int k = 0; k <= i % 37; ++k) {
    h = (h ^ (uint32_t(i) >> (k % 32))) * 1099511628211ull;
    h ^= h >> 29;
    if (h % 7 == 3) h = h / 11 + uint32_t(h) % 1000003u;
    h = (h << 13) | (h >> 51);
  }
  out[i] = h;
}

KERNEL mandelbrot(int* out, int width, int height, int most) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const float cx = x * 3.0f / width - 2, cy = y * 3.0f / height - 1.5f;
  float a = 0, b = 0;
  int i = 0;
  for (; i < most && a * a + b * b < 4; ++i) {
    const float next = a * a - b * b + cx;
    b = 2 * a * b + cy;
    a = next;
  }
  out[y * width + x] = i;
}

struct Settings {
  float gain;
  int8_t offset;
  double bias;
  uint8_t pattern[5];
  float4 curve;
  short2 pair;
};

KERNEL settings(const Settings s, float* out, int n) {
  const int i = global_index();
  if (i >= n) return;
  const float* curve = &s.curve.x;
  out[i] =
      s.gain * i + s.offset + float(s.bias) + s.pattern[i % 5] + curve[i & 3] + s.pair.x * s.pair.y;
}

KERNEL choose(int* out, int n) {
  const int i = global_index();
  if (i >= n) return;
  int v = i;
  switch (i % 9) {
    case 0:
      v = v * 3 + 1;
      break;
    case 1:
      v ^= 0x55;
      break;
    case 2:
      v = -v;
      break;
    case 3:
      v = v >> 2;
      break;
    case 4:
      v = v * v;
      break;
    case 5:
      v = ~v;
      break;
    case 6:
      v += 77;
      break;
    default:
      v = 5;
      break;
  }
  out[i] = v;
}

KERNEL matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float a[16][16], b[16][16];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    a[ty][tx] = A[y * n + k + tx];
    b[ty][tx] = B[(k + ty) * n + x];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += a[ty][i] * b[i][tx];
    __syncthreads();
  }
  C[y * n + x] = sum;
}

static __device__ __noinline__ float cubic(float x, const float* c) {
  return ((c[3] * x + c[2]) * x + c[1]) * x + c[0];
}

KERNEL polynomial(float* x, int n) {
  const int i = global_index();
  float c[4];
  for (int k = 0; k < 4; ++k) c[(k + i) & 3] = k + 1.0f;
  if (i < n) x[i] = cubic(x[i], c) + cubic(2 * x[i], c);
}

KERNEL histogram(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = global_index(); i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
