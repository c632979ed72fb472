// SPDX-License-Identifier: Apache-2.0
// host_plugins.h: instances.
#include <utility>

#include "limits/limits.hpp"
#include "plugin/access.hpp"
#include "plugin/c_host.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

std::optional<Placement> read_placement(const ctxb_instance_options& given) {
  check_argument(given.device == 0 || given.placement == CTXB_PLACEMENT_DEVICE,
                 "device is given, but only CTXB_PLACEMENT_DEVICE names a device");
  switch (given.placement) {
    case CTXB_PLACEMENT_POLICY:
      return std::nullopt;
    case CTXB_PLACEMENT_DEVICE:
      return Placement(given.device);
    case CTXB_PLACEMENT_ROUND_ROBIN:
      return Placement(PlacementRule::round_robin);
    case CTXB_PLACEMENT_MOST_FREE_MEMORY:
      return Placement(PlacementRule::most_free_memory);
    default:
      throw Error(ErrorKind::invalid_argument, "placement " + std::to_string(given.placement) +
                                                   " is none; use CTXB_PLACEMENT_POLICY, _DEVICE, "
                                                   "_ROUND_ROBIN or _MOST_FREE_MEMORY");
  }
}

// No plug-in has saved more.
void check_state_bytes(std::uint64_t bytes) {
  if (bytes <= limits::plugin_state.most) return;
  throw Error(ErrorKind::invalid_argument, "the state has " + limits::beyond(limits::plugin_state));
}

}  // namespace

InstanceOptions read(const ctxb_instance_options* options) {
  InstanceOptions wanted;
  if (options == nullptr) return wanted;
  const ctxb_instance_options given =
      taken(options, "the options' size is not sizeof(ctxb_instance_options)");
  wanted.device = read_placement(given);
  wanted.lease = read_lease(given.lease, given.multiprocessors);
  wanted.memory_budget = read_limit(given.memory_budget);
  wanted.job_graphs = read_flag(given.job_graphs, "job_graphs");
  return wanted;
}

ActivationSizes read(const ctxb_activation_sizes* sizes) {
  const ctxb_activation_sizes given =
      taken(sizes, "sizes is null, or its size is not sizeof(ctxb_activation_sizes)");
  return {given.max_width, given.max_height, given.sample_rate,
          read_flag(given.realtime, "realtime")};
}

}  // namespace ctxbroker::detail

using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::give;

ctxb_status ctxb_instance_create(ctxb_broker* broker, const ctxb_plugin_library* library,
                                 const char* plugin, const ctxb_instance_options* options,
                                 ctxb_instance** instance) {
  if (instance != nullptr) *instance = nullptr;
  return answered(
      broker != nullptr && library != nullptr && plugin != nullptr && instance != nullptr,
      "broker, library, plugin or instance is null", [&] {
        *instance = new ctxb_instance{
            broker->broker.create(library->library, plugin, ctxbroker::detail::read(options)),
            library->library.name(),
            {}};
      });
}

ctxb_status ctxb_instance_destroy(ctxb_instance* instance) {
  return answered(instance != nullptr, "instance is null", [&] {
    if (instance->uses != 0) {
      throw ctxbroker::Error(ctxbroker::ErrorKind::wrong_state,
                             "the instance of " + instance->instance.description().short_name +
                                 " is in a graph; destroy the graph first");
    }
    delete instance;
  });
}

ctxb_status ctxb_instance_activate(ctxb_instance* instance, const ctxb_activation_sizes* sizes) {
  return answered(instance != nullptr, "instance is null",
                  [&] { instance->instance.activate(ctxbroker::detail::read(sizes)); });
}

ctxb_status ctxb_instance_deactivate(ctxb_instance* instance) {
  return answered(instance != nullptr, "instance is null",
                  [&] { instance->instance.deactivate(); });
}

uint32_t ctxb_instance_is_active(const ctxb_instance* instance) {
  return instance != nullptr && instance->instance.active() ? 1 : 0;
}

uint32_t ctxb_instance_restart_requested(const ctxb_instance* instance) {
  return instance != nullptr && instance->instance.restart_requested() ? 1 : 0;
}

uint64_t ctxb_instance_latency(const ctxb_instance* instance) {
  uint64_t frames = 0;
  answered(instance != nullptr, "instance is null",
           [&] { frames = instance->instance.latency_frames(); });
  return frames;
}

uint64_t ctxb_instance_tail(const ctxb_instance* instance) {
  uint64_t frames = 0;
  answered(instance != nullptr, "instance is null",
           [&] { frames = instance->instance.tail_frames(); });
  return frames;
}

ctxb_status ctxb_instance_save_state(const ctxb_instance* instance, ctxb_text_function write,
                                     void* data) {
  return ctxbroker::detail::send(write, data, [&](const auto& take) {
    check_argument(instance != nullptr, "instance is null");
    const std::vector<std::byte> state = instance->instance.save_state();
    if (state.empty()) return;
    take(std::string_view(reinterpret_cast<const char*>(state.data()), state.size()));
  });
}

ctxb_status ctxb_instance_load_state(ctxb_instance* instance, const void* state, uint64_t bytes) {
  return answered(instance != nullptr, "instance is null", [&] {
    check_argument(state != nullptr || bytes == 0, "state is null, and bytes is not 0");
    ctxbroker::detail::check_state_bytes(bytes);
    const auto* const first = static_cast<const std::byte*>(state);
    ctxbroker::detail::Access::of(instance->instance).load_state({first, bytes});
  });
}

ctxb_status ctxb_instance_lease(ctxb_instance* instance, ctxb_lease_info* info) {
  return answered(instance != nullptr, "instance is null", [&] {
    ctxbroker::detail::give_lease(info, instance->instance.lease(), instance->tenant.c_str(),
                                  instance->reasons);
  });
}

ctxb_status ctxb_instance_measure(const ctxb_instance* instance, ctxb_instance_metrics* metrics) {
  return answered(instance != nullptr, "instance is null", [&] {
    const ctxbroker::Metrics all = instance->instance.metrics();
    give(metrics,
         {0, 0, all.jobs, all.launches, all.graph_jobs, all.device_seconds, all.memory_bytes,
          all.memory_peak_bytes, all.strikes, all.late_jobs},
         "metrics is null, or its size is not sizeof(ctxb_instance_metrics)");
  });
}
