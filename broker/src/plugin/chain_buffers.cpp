#include "plugin/chain_buffers.hpp"

namespace ctxbroker::detail {

bool share_context(const Lease& a, const Lease& b) noexcept {
  // Equal handles mean the same life here: both leases hold it alive.
  return a.info().context == b.info().context;
}

ChainBuffers make_chain_buffers(const std::vector<std::shared_ptr<Lease>>& stages,
                                std::uint64_t bytes) {
  ChainBuffers buffers;
  for (const auto& lease : stages) {
    if (buffers.pairs.empty() || !share_context(*buffers.pairs.back().lease, *lease)) {
      buffers.pairs.push_back(
          {lease, {make_device_memory(lease, bytes), make_device_memory(lease, bytes)}});
    }
    buffers.pair_of_stage.push_back(buffers.pairs.size() - 1);
  }
  return buffers;
}

}  // namespace ctxbroker::detail
