// SPDX-License-Identifier: Apache-2.0
// A library that sorts with Thrust. Its vectors and Thrust's own scratch memory are cudaMalloc and
// cudaFree each time. memory_thrust.py calls it.
#include <cuda_runtime_api.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>

#include <cstddef>
#include <exception>

struct Scrambled {
  unsigned seed;
  __host__ __device__ unsigned operator()(unsigned index) const {
    return (index ^ seed) * 2654435761u;
  }
};

extern "C" {

int take_device(std::size_t bytes, void** out) {
  return cudaMalloc(out, bytes);
}
int give_device(void* memory) {
  return cudaFree(memory);
}
int take_pinned(std::size_t bytes, void** out) {
  return cudaMallocHost(out, bytes);
}
int give_pinned(void* memory) {
  return cudaFreeHost(memory);
}

int free_memory(std::size_t* bytes) {
  std::size_t total = 0;
  return cudaMemGetInfo(bytes, &total);
}

// Sorts `count` keys with their places. Returns 0, 1 if they are out of order, or 2 after an error.
int sort_keys(unsigned count, unsigned seed, unsigned long long* sum) {
  try {
    thrust::device_vector<unsigned> keys(count), places(count);
    thrust::tabulate(keys.begin(), keys.end(), Scrambled{seed});
    thrust::sequence(places.begin(), places.end());
    thrust::sort_by_key(keys.begin(), keys.end(), places.begin());
    *sum = thrust::reduce(keys.begin(), keys.end(), 0ULL);
    return thrust::is_sorted(keys.begin(), keys.end()) ? 0 : 1;
  } catch (const std::exception&) {
    return 2;
  }
}

}  // extern "C"
