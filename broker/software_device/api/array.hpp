// SPDX-License-Identifier: Apache-2.0
// CUDA arrays: memory that is reached by element, never by address. Here it is plain rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct Context;

struct Array {
  // Checks the description (CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED for formats and
  // flags that are not built) and takes memory of the context's device (CUDA_ERROR_OUT_OF_MEMORY).
  Array(Context& of, const CUDA_ARRAY3D_DESCRIPTOR& its_description);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Context& context;
  CUarray handle = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR description;
  const std::size_t element;          // bytes
  const std::size_t width;            // bytes of a row
  const std::size_t height, depth;    // rows and slices, at least 1
  std::unique_ptr<std::byte[]> data;  // slices of rows, without gaps
};

// The array of a handle, of a living context; CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<Array> find_array(CUarray handle);

}  // namespace ctxbroker::software
