// SPDX-License-Identifier: Apache-2.0
// Copies and fills between device, pinned and pageable memory. What of it was freed when the work
// comes to it is an illegal address, which ends CUDA for the process as a kernel's does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "api/array.hpp"
#include "api/memory_registry.hpp"
#include "api/stream.hpp"

namespace ctxbroker::software {

// What the caller says about an address.
enum class Side : std::uint8_t {
  host,     // any readable or writable memory of the process
  device,   // must lie in a block the driver knows
  unified,  // either
  array,    // in the array's data
};

// Rows of a source or a destination. One row for a plain copy.
struct Surface {
  Side side = Side::unified;
  std::uintptr_t address = 0;
  std::size_t pitch = 0;  // bytes from row to row
  std::size_t slice = 0;  // bytes from slice to slice
  std::shared_ptr<const Array> array = nullptr;
};

struct Extent {
  std::size_t width = 0;  // bytes
  std::size_t height = 1;
  std::size_t depth = 1;
};

enum class Waiting : std::uint8_t {
  as_driver,         // of an asynchronous call: returns when the caller may touch its pageable
                     // memory again, and of a copy from host to host memory when it is done
  unless_on_device,  // of a synchronous call: the same where only the device can reach the memory,
                     // else returns when the work is done
  done,              // returns when the copy is done
};

// Checks both sides (CUDA_ERROR_INVALID_VALUE) and enqueues. From pageable memory: the source is
// read before the call returns. To pageable memory: the call waits.
CUresult copy(const std::shared_ptr<Stream>& stream, Surface to, Surface from, Extent extent,
              Waiting waiting);

// Checks the sides of a copy described in three dimensions. CUDA_ERROR_INVALID_VALUE.
struct ShapedCopy {
  Surface to, from;
  Extent extent;
};
ShapedCopy shaped_copy(const CUDA_MEMCPY3D& request);

struct Pattern {
  std::uint32_t value = 0;
  unsigned bytes = 1;  // 1, 2 or 4
};

// Fills `extent` (its width in bytes).
CUresult fill(const std::shared_ptr<Stream>& stream, CUdeviceptr address, std::size_t pitch,
              Pattern pattern, Extent extent, Waiting waiting);

// The same as work of a graph's node: checked now, done as often as wanted.
std::function<CUresult()> copy_work(const ShapedCopy& shaped);
std::function<CUresult()> fill_work(CUdeviceptr address, std::size_t pitch, Pattern pattern,
                                    Extent extent);

}  // namespace ctxbroker::software
