// SPDX-License-Identifier: Apache-2.0
// Kernels that allocate: malloc and free, new and delete.
#include <cstdlib>

#define KERNEL extern "C" __global__ void

using Word = unsigned long long;

// Each thread leaves a list of `length` nodes behind for the next kernel.
struct Node {
  Node* next;
  int value;
};
KERNEL make_lists(Node** lists, int length) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Node* first = nullptr;
  for (int k = 0; k < length; ++k) {
    Node* node = static_cast<Node*>(malloc(sizeof(Node)));
    if (node == nullptr) break;
    node->next = first;
    node->value = 100 * i + k;
    first = node;
  }
  lists[i] = first;
}
KERNEL sum_and_free_lists(Node** lists, int* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = 0;
  for (Node* node = lists[i]; node != nullptr;) {
    Node* next = node->next;
    sum += node->value;
    free(node);
    node = next;
  }
  sums[i] = sum;
}

struct Shape {
  __device__ virtual int area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ explicit Square(int its_side) : side(its_side) {}
  __device__ int area() const override { return side * side; }
  int side;
};
struct Sum : Shape {
  __device__ Sum(Shape* its_a, Shape* its_b) : a(its_a), b(its_b) {}
  __device__ int area() const override { return a->area() + b->area(); }
  __device__ ~Sum() override {
    delete a;
    delete b;
  }
  Shape *a, *b;
};
KERNEL shapes(int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Shape* shape = new Square(i);
  for (int k = 0; k < i % 4; ++k) shape = new Sum(shape, new Square(k + 1));
  out[i] = shape->area();
  delete shape;
}

KERNEL give_blocks(Word* out, Word size) {
  out[threadIdx.x] = reinterpret_cast<Word>(malloc(size));
}
KERNEL free_block(Word* out, Word address) {
  free(reinterpret_cast<void*>(address));
  *out = 1;
}
