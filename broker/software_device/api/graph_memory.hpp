// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate for themselves. Its address is there from its node on; whether it is
// allocated changes with launches and frees, in the order of the calls, where NVIDIA's driver goes
// by the order of the work.
#pragma once

#include <cstddef>
#include <memory>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class Device;
struct Block;

// What a graph's node and its launches hold.
class GraphMemory {
 public:
  // CUDA_ERROR_OUT_OF_MEMORY for want of addresses.
  GraphMemory(Device& device, std::size_t bytes);
  ~GraphMemory();  // what is allocated stays until it is freed
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  CUdeviceptr address() const noexcept;
  std::size_t bytes() const noexcept;
  Device& device() const noexcept;

  // A launch comes to the node. CUDA_ERROR_INVALID_VALUE where it is allocated already, unless
  // `again`; CUDA_ERROR_OUT_OF_MEMORY.
  void allocate(bool again);

 private:
  const std::shared_ptr<Block> block_;
};

// The same, freed; by a node, cuMemFree or cuMemFreeAsync. CUDA_ERROR_INVALID_VALUE where it is not
// allocated, or none.
void free_graph_memory(const Block& block);

// What is freed stays the device's reserve until this.
void trim_graph_memory(const Device& device);

struct GraphMemoryFigures {  // bytes
  cuuint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
GraphMemoryFigures graph_memory_figures(const Device& device);
void reset_graph_memory_high(const Device& device, CUgraphMem_attribute which);

}  // namespace ctxbroker::software
