// SPDX-License-Identifier: Apache-2.0
// What the samples on the runtime API share: errors as exceptions, and memory with an owner.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <ctxbroker/plugin.hpp>
#include <string>

namespace ctxbroker::sample {

// Throws when a call of the runtime failed; its codes that can come here have the driver's numbers.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return;
  }
  throw sdk::Failure(
      status == cudaErrorMemoryAllocation ? CTXB_ERROR_OUT_OF_DEVICE_MEMORY : CTXB_ERROR_DRIVER,
      std::string(what) + ": " + cudaGetErrorString(status), static_cast<int>(status));
}

// Values of T from cudaMalloc. reset() in activate and deactivate; forget() when the context is
// lost, and nothing in the destructor, for then no context is current.
template <class T>
class RuntimeBuffer {
 public:
  RuntimeBuffer() = default;
  RuntimeBuffer(const RuntimeBuffer&) = delete;
  RuntimeBuffer& operator=(const RuntimeBuffer&) = delete;

  // Instead of what it held.
  void allocate(std::size_t count) {
    reset();
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
    bytes_ = count * sizeof(T);
  }
  void reset() noexcept {
    if (data_ != nullptr) {
      // An error has nobody to go to; the host's ledger knows what was not given back.
      static_cast<void>(cudaFree(data_));
    }
    forget();
  }
  void forget() noexcept {
    data_ = nullptr;
    bytes_ = 0;
  }

  T* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ctxbroker::sample
