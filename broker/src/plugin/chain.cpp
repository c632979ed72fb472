#include "ctxbroker/chain.hpp"

#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/chain_impl.hpp"

namespace ctxbroker {

// NOLINTNEXTLINE(performance-unnecessary-value-param): by value, so that hosts can hand a list over
Chain::Chain(Broker& broker, std::vector<PluginInstance*> stages, const ActivationSizes& sizes)
    : impl_(std::make_unique<Impl>(detail::Access::of(broker), stages, sizes)) {}
Chain::Chain(Chain&&) noexcept = default;
Chain& Chain::operator=(Chain&&) noexcept = default;
Chain::~Chain() = default;

void Chain::process(const float* input, float* output, const JobInfo& job) {
  if (impl_ == nullptr) throw Error(ErrorKind::wrong_state, "chain: it was moved away");
  impl_->process(input, output, job);
}

}  // namespace ctxbroker
