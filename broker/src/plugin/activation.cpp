#include "plugin/activation.hpp"

namespace ctxbroker::detail {

std::unique_ptr<Activation> make_activation(const std::shared_ptr<Lease>& lease,
                                            const PluginRecord& plugin,
                                            const ActivationSizes& sizes) {
  auto activation = std::make_unique<Activation>();
  activation->lease = lease;
  activation->sizes = sizes;
  activation->serial = next_generation();
  for (const auto& image : plugin.modules) {
    activation->modules.push_back(load_module(lease, image));
  }
  activation->staging = make_pinned_memory(lease, CTXB_UPLOAD_MAX);
  activation->stream = make_stream(lease);
  return activation;
}

const LoadedModule* find_module(const Activation& activation, const char* name) noexcept {
  if (name == nullptr) {
    return activation.modules.size() == 1 ? &activation.modules.front() : nullptr;
  }
  for (const auto& module : activation.modules) {
    if (module.name == name) return &module;
  }
  return nullptr;
}

}  // namespace ctxbroker::detail
