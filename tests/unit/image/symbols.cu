// SPDX-License-Identifier: Apache-2.0
// Names of every sort, for what is read of an image without loading it.
__device__ int counter = 3;
__constant__ float table[4];
__device__ double2 points[5];

extern "C" __global__ void first(int* values) {
  __shared__ int kept[32];
  kept[threadIdx.x] = *values;
  __syncthreads();
  *values = kept[0] + counter + static_cast<int>(table[*values] + points[*values].y);
}

template <int n>
__global__ void constant(int* values) {
  *values = n;
}
template __global__ void constant<3>(int*);
