// SPDX-License-Identifier: Apache-2.0
// Kernels that print. What they print on a GPU is in the tests that run them.
#include <cstdio>

#define KERNEL extern "C" __global__ void

__device__ const char* nothing = nullptr;
__device__ char in_global[] = "global";
__constant__ char in_constant[] = "constant";

KERNEL lines(int threads) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < threads) printf("thread %d of %d: %.2f\n", i, threads, i * 0.25f);
}

KERNEL values(int x, long long big, float f, int* returned) {
  returned[0] = printf("plain\n");
  returned[1] = printf("%d %i %u %o %x %X %#x %c %%\n", x, -x, x, x, 255, 255, 255, 'q');
  returned[2] = printf("%lld %ld %lu %llx %d\n", big, static_cast<long>(big), 7ul, big, x);
  returned[3] = printf("%f %e %E %g %G %a %F\n", f, 1e10, 1e10, 1e-5, 1e-10, 1.0, 1.5);
  returned[4] = printf("[%5.2f|%-6d|%+d|%06x|% d|%+.3i|%--08d]\n", 1.5, x, x, x, x, x, x);
  returned[5] = printf("[%*d|%*d|%d]\n", 7, x, -6, x, x);
  returned[6] = printf("%hd %hu %hx\n", x + 65536, x - 65536, -1);
  returned[7] = printf("[%5c|%-5c] %p %p\n", 'a', 'b', (void*)0x1234, (void*)0);
  returned[8] = printf(nothing);
}

KERNEL strings(const char* text, int* returned) {
  __shared__ char in_shared[7];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 7; ++i) in_shared[i] = "shared"[i];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  char in_local[6] = "local";
  in_local[4] = text[0];
  returned[0] = printf("%s %s %s\n", text, "literal", in_local);
  returned[1] = printf("%s %s %s\n", in_global, in_constant, in_shared);
  returned[2] = printf("[%8s|%-8s|%.2s|%8.2s|%*s]\n", text, text, text, text, 9, text);
  returned[3] = printf("[%s|%.3s|%8s]\n", nothing, nothing, nothing);
}

KERNEL crash_after(int* at) {
  printf("before\n");
  *at = 1;
  printf("after\n");
}

KERNEL illegal_string(const char* text) {
  printf("before\n");
  printf("%s\n", text);
}
