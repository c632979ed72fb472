// SPDX-License-Identifier: Apache-2.0
#include "plugin/activation.hpp"

#include "module/module_service.hpp"

namespace ctxbroker::detail {

void Activation::make_staging(std::size_t jobs) {
  if (jobs <= staging_jobs) return;
  staging = make_pinned_memory(lease, jobs * std::uint64_t{CTXB_UPLOAD_MAX});
  staging_jobs = jobs;
}

std::unique_ptr<Activation> make_activation(const std::shared_ptr<LeaseModules>& at,
                                            ModuleService& service, const PluginRecord& plugin,
                                            const ActivationSizes& sizes) {
  const bool real_time = sizes.realtime || (plugin.description.flags & CTXB_PLUGIN_REALTIME) != 0;
  auto activation = std::make_unique<Activation>();
  activation->lease = at->lease();
  activation->sizes = sizes;
  activation->serial = next_generation();
  activation->modules =
      std::make_unique<ModuleSet>(service, at, plugin.modules, activation->kernels, real_time);
  activation->modules->set_before_forget([graph = &activation->job_graph] { graph->forget(); });
  activation->modules->load();
  activation->make_staging(1);
  activation->stream = create_stream(activation->lease);
  activation->modules->set_stream(activation->stream.get());
  return activation;
}

}  // namespace ctxbroker::detail
