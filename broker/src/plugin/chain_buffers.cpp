#include "plugin/chain_buffers.hpp"

namespace ctxbroker::detail {

ChainBuffers make_chain_buffers(const std::vector<std::shared_ptr<Lease>>& stages,
                                std::uint64_t bytes) {
  ChainBuffers buffers;
  for (const auto& lease : stages) {
    if (buffers.pairs.empty() || !buffers.pairs.back().lease->shares_memory_with(*lease)) {
      buffers.pairs.push_back(
          {lease, {make_device_memory(lease, bytes), make_device_memory(lease, bytes)}});
    }
    buffers.pair_of_stage.push_back(buffers.pairs.size() - 1);
  }
  return buffers;
}

}  // namespace ctxbroker::detail
