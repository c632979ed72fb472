// The device buffers of a chain: two for every run of neighbours that share memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/resources.hpp"

namespace ctxbroker::detail {

// A run of stages whose leases share memory. They pass the image back and forth between its two
// buffers.
struct BufferPair {
  std::shared_ptr<Lease> lease;  // of the run's first stage
  DeviceMemory memory[2];
};

struct ChainBuffers {
  std::vector<BufferPair> pairs;
  std::vector<std::size_t> pair_of_stage;
};

// Buffers of `bytes` for stages with these leases, in their order. Throws Error: out_of_memory,
// driver_call.
ChainBuffers make_chain_buffers(const std::vector<std::shared_ptr<Lease>>& stages,
                                std::uint64_t bytes);

// Where a job's samples are now.
struct Place {
  std::size_t pair = 0;
  std::size_t side = 0;
};

}  // namespace ctxbroker::detail
