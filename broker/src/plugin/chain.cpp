// Builds chains and checks their jobs. chain_run.cpp runs the jobs.
#include "ctxbroker/chain.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/chain_impl.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "chain: " + why);
}

// What depends on the rate (filters, delays) was made in activate, so another rate would be wrong.
void check_rate(const char* what, double rate, const std::string& plugin, double active) {
  if (rate == active) return;
  std::ostringstream text;
  text << what << " has a sample rate of " << rate << " Hz, but " << plugin << " is active for "
       << active << " Hz; deactivate and activate the plug-in to change its rate";
  refuse(text.str());
}

void check_stages(const std::vector<PluginInstance*>& instances, const BrokerImpl& broker,
                  const ActivationSizes& sizes) {
  if (instances.empty()) refuse("it needs at least one plug-in instance");
  for (PluginInstance* instance : instances) {
    if (instance == nullptr) refuse("an instance is null");
    const std::string name = instance->description().short_name;
    if (&Access::of(*instance).broker() != &broker) refuse(name + " belongs to another broker");
    if (!instance->active()) refuse(name + " is not active");
    if (instance->description().media != instances[0]->description().media) {
      refuse(name + " processes " + to_string(instance->description().media) +
             ", the first one does not");
    }
    const ActivationSizes& active = Access::of(*instance).activation()->sizes;
    if (sizes.max_width > active.max_width || sizes.max_height > active.max_height) {
      refuse(name + " is active for " + std::to_string(active.max_width) + " x " +
             std::to_string(active.max_height) + " only");
    }
    if (instance->description().media == Media::audio) {
      check_rate("the chain", sizes.sample_rate, name, active.sample_rate);
    }
  }
  if (sizes.max_width == 0 || sizes.max_height == 0) refuse("a size is 0");
}

// Buffers of `bytes` for stages with these leases, in their order. Throws Error: out_of_memory,
// driver_call.
ChainBuffers make_buffers(const std::vector<std::shared_ptr<Lease>>& stages, std::uint64_t bytes) {
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

}  // namespace

Chain::Impl::Impl(BrokerImpl& owner, const std::vector<PluginInstance*>& instances,
                  const ActivationSizes& limits)
    : broker(owner), sizes(limits) {
  check_stages(instances, broker, sizes);
  media = instances[0]->description().media;
  channels = media == Media::image ? 4 : 1;
  for (PluginInstance* instance : instances) {
    stages.emplace_back();
    stages.back().instance = &Access::of(*instance);
    stages.back().lease = Access::of(*instance).activation()->lease;
  }
  renew_lost_stages();
  broker.add_chain();  // last: nothing above has to be undone here
}

// Everything that belongs to the activations as they are now.
void Chain::Impl::build() {
  built = false;
  buffers = {};
  staging = {};
  std::vector<std::shared_ptr<Lease>> leases;
  for (Stage& stage : stages) {
    const Activation& activation = *stage.instance->activation();
    leases.push_back(activation.lease);
    stage = {stage.instance, activation.lease, activation.serial, activation.stream.get(),
             StageTimes(activation.lease)};
  }
  const std::uint64_t bytes = bytes_of(sizes.max_width, sizes.max_height);
  buffers = make_buffers(leases, bytes);
  staging = make_pinned_memory(leases.front(), bytes + stages.size() * sizeof(std::uint32_t));
  built = true;
}

void Chain::Impl::check_job(const float* input, const float* output, const JobInfo& job) const {
  if (input == nullptr || output == nullptr) refuse("input or output is null");
  if (job.width == 0 || job.height == 0) refuse("the job's width or height is 0");
  if (job.width > sizes.max_width || job.height > sizes.max_height) {
    refuse("a job of " + std::to_string(job.width) + " x " + std::to_string(job.height) +
           " does not fit into " + std::to_string(sizes.max_width) + " x " +
           std::to_string(sizes.max_height));
  }
  if (!std::isfinite(job.sample_rate) || job.sample_rate < 0)
    refuse("the sample rate is negative or not finite");
  if (media == Media::audio) {
    check_rate("the job", job.sample_rate, stages[0].instance->description().short_name,
               sizes.sample_rate);
  }
  for (const Stage& stage : stages) {
    const Activation* activation = stage.instance->activation();
    // After a loss another chain may have renewed it: then it is followed.
    const bool same = activation != nullptr && activation->serial == stage.activation;
    const bool renewed = activation != nullptr && (stage.lease->lost() || !built) &&
                         sizes.max_width <= activation->sizes.max_width &&
                         sizes.max_height <= activation->sizes.max_height;
    if (!same && !renewed && !stage.instance->awaits_renewal()) {
      throw Error(ErrorKind::wrong_state,
                  "chain: plug-in " + stage.instance->description().short_name +
                      " was deactivated since the chain was made; make a new chain");
    }
  }
}

// A lost lease that can be made anew is, with its plug-in activated again. True when any was.
bool Chain::Impl::renew_lost_stages() {
  bool any = false;
  for (const Stage& stage : stages) {
    Instance& instance = *stage.instance;
    any = any || instance.awaits_renewal();
    const LeaseState state = stage.lease->state();
    if (state == LeaseState::ready) continue;
    const std::string who = "chain: the context of plug-in " + instance.description().short_name;
    const Error::Origin origin{.device = stage.lease->device_ordinal(),
                               .tenant = stage.lease->tenant().name};
    if (state == LeaseState::ended) {
      const CUresult fault = broker.fault().status();
      throw Error(ErrorKind::context_lost,
                  who + " is gone: CUDA has ended in this process after " +
                      status_text(stage.lease->table(), fault) +
                      "; only a new process can use it again",
                  origin);
    }
    if (state == LeaseState::hung) {
      throw Error(ErrorKind::context_lost,
                  who + " is hung: its work exceeded its timeout, and it takes no new work",
                  origin);
    }
    // Nothing that allocates, compiles or calls [main] functions belongs on an audio thread.
    const bool is_realtime =
        instance.activation() != nullptr && instance.activation()->sizes.realtime;
    if (is_realtime) {
      throw Error(ErrorKind::context_lost,
                  who + " is gone; deactivate and activate it again, and make a new chain", origin);
    }
    any = true;
  }
  for (const Stage& stage : stages) {
    if (stage.lease->lost()) continue;
    if (stage.instance->take_changed_files()) any = true;
  }
  if (!any && built) return false;
  for (const Stage& stage : stages) {
    // Several stages may be of one tenant; each instance is renewed once.
    const Activation* activation = stage.instance->activation();
    if (activation == nullptr || activation->lease->lost()) stage.instance->renew();
  }
  build();
  return true;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): by value, so that hosts can hand a list over
Chain::Chain(Broker& broker, std::vector<PluginInstance*> stages, const ActivationSizes& sizes)
    : impl_(std::make_unique<Impl>(detail::Access::of(broker), stages, sizes)) {}
Chain::Chain(Chain&&) noexcept = default;
Chain& Chain::operator=(Chain&&) noexcept = default;
Chain::~Chain() = default;

void Chain::process(const float* input, float* output, const JobInfo& job) {
  if (impl_ == nullptr) throw Error(ErrorKind::wrong_state, "chain: it was moved from");
  impl_->process(input, output, job);
}

}  // namespace ctxbroker
