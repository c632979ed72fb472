// SPDX-License-Identifier: Apache-2.0
// Everything of the language that shapes PTX beyond plain instructions: initialised variables of
// all kinds, calls, tables of functions, local arrays, dynamic memory, printf, jump tables.
#include <cstdio>

struct Settings {
  int mode;
  double weights[3];
  char tag;
};

__constant__ float taps[17] = {1.0f, 2.0f, 3.5f};
__constant__ float4 colours[3];
__device__ double matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int numbers[10];
__device__ int* fourth = &numbers[3];
__device__ const char* message = "hello";
__device__ Settings settings = {3, {1, 2, 3}, 'x'};
__managed__ int managed = 4;

#pragma pack(push, 1)
struct Packed {
  char first;
  const int* pointer;
};
#pragma pack(pop)
__device__ Packed packed = {1, &numbers[2]};

__device__ __noinline__ int add(int a, int b) {
  return a + b;
}
__device__ __noinline__ int subtract(int a, int b) {
  return a - b;
}
using Operation = int (*)(int, int);
__device__ Operation operations[2] = {add, subtract};

struct Shape {
  __device__ virtual float area() const = 0;
  float size;
};
struct Square : Shape {
  __device__ float area() const override { return size * size; }
};
struct Disc : Shape {
  __device__ float area() const override { return 3.1415927f * size * size; }
};

extern __shared__ float dynamic[];

extern "C" __global__ void __launch_bounds__(128, 2)
    language(float* out, Settings given, int choice) {
  __shared__ float tile[32][33];
  __shared__ int count;
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i == 0) count = 0;
  tile[threadIdx.x % 32][threadIdx.x / 32] = i + taps[i % 17] + dynamic[i];
  __syncthreads();
  int local[20];
  for (int j = 0; j < 20; j++) local[j] = operations[j & 1](i, j) + given.mode;
  atomicAdd(&count, local[choice]);
  printf("%d %f\n", i, tile[0][i]);
  out[i] =
      tile[i % 32][0] + local[(i * 7) % 20] + count + static_cast<float>(matrix[i & 1][choice]);
  out[i] += given.weights[choice] + colours[choice].x + settings.tag + *packed.pointer;
  switch (choice) {
    case 0:
      out[0] = 1;
      break;
    case 1:
      out[2] = sinf(out[1]);
      break;
    case 2:
      out[3] = 4;
      break;
    case 3:
      out[2] = out[7] * 9;
      break;
    case 4:
      out[7] = 9;
      break;
    case 5:
      out[9] = powf(out[1], out[2]);
      break;
    case 6:
      out[1] = 5;
      break;
  }
  int* heap = new int[choice];
  heap[0] = *fourth + message[choice] + managed;
  out[5] = heap[0];
  delete[] heap;
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %0, 0;\n\t@p bra DONE;\n\ttrap;\nDONE:\n\t}" ::"r"(
          choice));
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %0, 1;\n\t@!p bra DONE;\n\ttrap;\nDONE:\n\t}" ::"r"(
          choice));
}

extern "C" __global__ void shapes(float* out, bool square) {
  Square a;
  Disc b;
  a.size = out[1];
  b.size = out[2];
  const Shape* shape = square ? static_cast<const Shape*>(&a) : &b;
  out[0] = shape->area();
}
