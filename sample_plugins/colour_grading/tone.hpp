// SPDX-License-Identifier: Apache-2.0
// The kernels beside the matrix product. Both enqueue, and throw Failure.
#pragma once

#include <cuda_runtime_api.h>

#include <ctxbroker/sdk/views.hpp>

#include "grade.hpp"

namespace ctxbroker::sample {

// Puts the matrix, which travels with the launch, where cuBLAS finds it.
void store(const Matrix4& matrix, float* where, cudaStream_t stream);

// rgb = pow(rgb + lift * (1 - rgb), 1 / gamma), where light below 0 keeps its sign, in place.
void tone(const sdk::ImageView& image, float lift, float gamma, cudaStream_t stream);

}  // namespace ctxbroker::sample
