// SPDX-License-Identifier: Apache-2.0
// What the benchmarks run: nothing, a stretch of arithmetic, and traffic to memory.

extern "C" __global__ void nothing() {}

// A chain of dependent multiply-adds. `sink` is written only if the result is one that it never is,
// so that the loop is not optimised away.
extern "C" __global__ void work(unsigned rounds, float* sink) {
  float value = static_cast<float>(threadIdx.x);
  for (unsigned i = 0; i < rounds; ++i) {
    value = fmaf(value, 0.5f, 1.0f);
  }
  if (value == -1.0f) {
    sink[0] = value;
  }
}

// a = b + 3 c, over and over.
extern "C" __global__ void triad(float* a, const float* b, const float* c, unsigned count,
                                 unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
      a[i] = b[i] + 3.0f * c[i];
    }
  }
}
