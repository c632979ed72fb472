// SPDX-License-Identifier: Apache-2.0
// Calls that a compiler cannot resolve: through pointers, of virtual functions, of functions that
// call themselves. The test has the same functions in C++.
#include <new>

#define KERNEL extern "C" __global__ void
#define APART __device__ __noinline__

using Binary = int (*)(int, int);

APART int add(int a, int b) {
  return a + b;
}
APART int subtract(int a, int b) {
  return a - b;
}
APART int multiply(int a, int b) {
  return a * b;
}
__device__ Binary in_global[3] = {add, subtract, multiply};
__constant__ Binary in_constant[3] = {multiply, add, subtract};

KERNEL tables(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Binary chosen = i % 2 != 0 ? add : subtract;
  out[i] = in_global[i % 3](i, n) + 1000 * in_constant[i % 5 % 3](n, i) + chosen(7, i);
}

// Some lanes make no call at all, some several: they part and meet.
KERNEL divergent(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = 0;
  for (int k = 0; k < i % 7; ++k) {
    if ((i + k) % 3 != 0) sum += in_global[(i + k) % 3](sum + k, n);
  }
  __syncthreads();
  out[i] = sum;
}

struct Big {
  double values[3];
  int count;
  float scale;
};
using Change = Big (*)(Big, char, short, float4);
APART Big grow(Big big, char a, short b, float4 by) {
  big.values[0] += a;
  big.values[1] += b;
  big.count += static_cast<int>(by.x);
  big.scale = by.w;
  return big;
}
APART Big shrink(Big big, char a, short b, float4 by) {
  big.values[1] -= a;
  big.values[2] -= b;
  big.count -= static_cast<int>(by.y);
  big.scale = by.z;
  return big;
}
KERNEL structures(Big* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Change change = i % 2 != 0 ? grow : shrink;
  out[i] = change(out[i], static_cast<char>(i), static_cast<short>(3 * i),
                  make_float4(i, 2 * i, 0.5f, 0.25f));
}

struct Shape {
  __device__ explicit Shape(int its_size) : size(its_size) {}
  __device__ virtual int area(int scale) const = 0;
  __device__ virtual int corners() const { return 0; }
  int size;
};
struct Square : Shape {
  using Shape::Shape;
  __device__ int area(int scale) const override { return scale * size * size; }
  __device__ int corners() const override { return 4; }
};
struct Circle : Shape {
  using Shape::Shape;
  __device__ int area(int scale) const override { return scale * (size * size * 355 / 113); }
};
KERNEL make_shapes(char* memory) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  void* place = memory + 16 * i;
  if (i % 3 == 0)
    new (place) Square(i);
  else
    new (place) Circle(i);
}
// A kernel of its own: the objects keep their functions from launch to launch.
KERNEL measure_shapes(const char* memory, int* out, int scale) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Shape* shape = reinterpret_cast<const Shape*>(memory + 16 * i);
  out[i] = shape->area(scale) + shape->corners();
}

__device__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__device__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
APART int is_odd(int n);
APART int is_even(int n) {
  volatile int own[8];
  own[n & 7] = n;
  return n == 0 ? 1 : is_odd(n - 1) + own[n & 7] - n;
}
APART int is_odd(int n) {
  return n == 0 ? 0 : is_even(n - 1);
}
using Step = int (*)(int, void*);
APART int sum_to(int n, void* self) {
  return n == 0 ? 0 : n + reinterpret_cast<Step>(self)(n - 1, self);
}
KERNEL recursion(int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[4 * i] = fibonacci(i % 11);
  out[4 * i + 1] = ackermann(2, i % 4);
  out[4 * i + 2] = is_even(i % 9);
  out[4 * i + 3] = sum_to(i % 13, reinterpret_cast<void*>(sum_to));
}

// Each call leaves its array behind, and finds it again.
APART int deep(int n, int* below) {
  int own[4] = {n, below[0], below[1], n * n};
  if (n == 0) return own[1] + own[2];
  const int result = deep(n - 1, own);
  return result + own[0] + own[3];
}
KERNEL nested(int* out, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int first[2] = {i, 2 * i};
  out[i] = deep(depth, first);
}

KERNEL call_pointer(int* out, Binary function) {
  *out = function(5, 3);
}
KERNEL give_pointers(Binary* out) {
  out[0] = add;
  out[1] = subtract;
}
