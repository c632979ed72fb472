// SPDX-License-Identifier: Apache-2.0
// host.h: the functions of a broker.
#include <utility>

#include "plugin/c_host.hpp"

namespace {

using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::give;
using ctxbroker::detail::send;

void give_summary(const ctxbroker::TimelineSummary& written, ctxb_timeline_summary* summary) {
  if (summary == nullptr) return;
  give(summary, {0, 0, written.spans, written.dropped, written.threads},
       "the summary's size is not sizeof(ctxb_timeline_summary)");
}

ctxb_status open(const ctxb_broker_options* options, ctxb_broker** broker,
                 ctxbroker::Broker (*opened)(ctxbroker::BrokerOptions)) {
  if (broker != nullptr) *broker = nullptr;
  return answered(broker != nullptr, "broker is null", [&] {
    auto made = std::make_unique<ctxb_broker>(
        ctxb_broker{opened(ctxbroker::detail::read(options)), {}, {}});
    made->gate = made->broker.gate();
    for (const std::string& tool : made->gate.tools) made->tools.push_back(tool.c_str());
    made->tools.push_back(nullptr);
    *broker = made.release();
  });
}

}  // namespace

ctxb_status ctxb_broker_open(const ctxb_broker_options* options, ctxb_broker** broker) {
  return open(options, broker, ctxbroker::Broker::open);
}

ctxb_status ctxb_broker_open_without_driver(const ctxb_broker_options* options,
                                            ctxb_broker** broker) {
  return open(options, broker, ctxbroker::Broker::open_without_driver);
}

ctxb_status ctxb_broker_close(ctxb_broker* broker) {
  return answered(broker != nullptr, "broker is null", [&] {
    broker->broker.close();
    delete broker;
  });
}

ctxb_status ctxb_broker_driver(const ctxb_broker* broker, ctxb_driver_info* info) {
  return answered(broker != nullptr, "broker is null", [&] {
    const ctxbroker::DriverInfo& driver = broker->broker.driver();
    const std::uint32_t kind =
        driver.kind == ctxbroker::DriverChoice::nvidia ? CTXB_DRIVER_NVIDIA : CTXB_DRIVER_SOFTWARE;
    give(info, {0, kind, driver.version, 0, driver.path.c_str(), driver.reason.c_str()},
         "info is null, or its size is not sizeof(ctxb_driver_info)");
  });
}

uint32_t ctxb_broker_device_count(const ctxb_broker* broker) {
  if (broker == nullptr || !broker->broker.has_driver()) return 0;
  return static_cast<uint32_t>(broker->broker.devices().size());
}

ctxb_status ctxb_broker_device(const ctxb_broker* broker, int32_t device, ctxb_device_info* info) {
  return answered(broker != nullptr, "broker is null", [&] {
    const ctxbroker::ShieldInfo shield = broker->broker.shield(device);  // says that there is none
    const ctxbroker::DeviceInfo& one = broker->broker.devices()[static_cast<std::size_t>(device)];
    ctxb_device_info described{};
    described.device = one.ordinal;
    described.name = one.name.c_str();
    described.compute_major = static_cast<uint32_t>(one.compute_major);
    described.compute_minor = static_cast<uint32_t>(one.compute_minor);
    described.multiprocessors = static_cast<uint32_t>(one.multiprocessors);
    described.in_use = shield.in_use ? 1 : 0;
    described.shielded = shield.up ? 1 : 0;
    described.mps = one.mps ? 1 : 0;
    described.memory_bytes = one.memory_bytes;
    described.memory_pools = one.memory_pools ? 1 : 0;
    described.pinned_pools = one.pinned_pools ? 1 : 0;
    give(info, described, "info is null, or its size is not sizeof(ctxb_device_info)");
  });
}

ctxb_status ctxb_broker_use_device(ctxb_broker* broker, int32_t device) {
  return answered(broker != nullptr, "broker is null", [&] { broker->broker.use_device(device); });
}

ctxb_status ctxb_broker_force_loss(ctxb_broker* broker, uint32_t tenant, int32_t device,
                                   const char* reason) {
  return answered(broker != nullptr && reason != nullptr, "broker or reason is null", [&] {
    check_argument(broker->broker.force_loss(ctxbroker::TenantId{tenant}, device, reason),
                   "the tenant has no lease on that device");
  });
}

ctxb_status ctxb_broker_unload_idle_modules(ctxb_broker* broker, int32_t device,
                                            uint64_t* unloaded) {
  if (unloaded != nullptr) *unloaded = 0;
  return answered(broker != nullptr, "broker is null", [&] {
    const std::size_t count = broker->broker.unload_idle_modules(device);
    if (unloaded != nullptr) *unloaded = count;
  });
}

ctxb_status ctxb_broker_gate(const ctxb_broker* broker, ctxb_gate_info* info) {
  return answered(broker != nullptr, "broker is null", [&] {
    give(info,
         {0, broker->gate.in_force ? 1U : 0U, static_cast<uint32_t>(broker->gate.mode), 0,
          broker->gate.reason.c_str(), broker->tools.data()},
         "info is null, or its size is not sizeof(ctxb_gate_info)");
  });
}

ctxb_status ctxb_broker_begin_realtime(ctxb_broker* broker) {
  return answered(broker != nullptr, "broker is null", [&] { broker->broker.begin_realtime(); });
}

ctxb_status ctxb_broker_end_realtime(ctxb_broker* broker) {
  return answered(broker != nullptr, "broker is null", [&] { broker->broker.end_realtime(); });
}

ctxb_status ctxb_broker_wait_until_ready(ctxb_broker* broker, uint32_t* ready) {
  if (ready != nullptr) *ready = 0;
  return answered(broker != nullptr, "broker is null", [&] {
    const bool all = broker->broker.wait_until_ready();
    if (ready != nullptr) *ready = all ? 1 : 0;
  });
}

ctxb_status ctxb_broker_poll(ctxb_broker* broker) {
  return answered(broker != nullptr, "broker is null", [&] { broker->broker.poll(); });
}

ctxb_status ctxb_broker_write_metrics(const ctxb_broker* broker, ctxb_text_function write,
                                      void* data) {
  return send(write, data, [&](const auto& take) {
    check_argument(broker != nullptr, "broker is null");
    take(to_json(broker->broker.metrics()));
  });
}

ctxb_status ctxb_broker_start_timeline(ctxb_broker* broker, uint64_t memory_bytes) {
  return answered(broker != nullptr, "broker is null", [&] {
    ctxbroker::TimelineOptions options;
    if (memory_bytes != 0) options.memory_bytes = memory_bytes;
    broker->broker.start_timeline(options);
  });
}

ctxb_status ctxb_broker_stop_timeline(ctxb_broker* broker) {
  return answered(broker != nullptr, "broker is null", [&] { broker->broker.stop_timeline(); });
}

ctxb_status ctxb_broker_write_timeline(ctxb_broker* broker, const char* path,
                                       ctxb_timeline_summary* summary) {
  return answered(broker != nullptr && path != nullptr, "broker or path is null", [&] {
    give_summary(broker->broker.write_timeline(std::filesystem::path(path)), summary);
  });
}

ctxb_status ctxb_broker_send_timeline(ctxb_broker* broker, ctxb_text_function write, void* data,
                                      ctxb_timeline_summary* summary) {
  return send(write, data, [&](const auto& take) {
    check_argument(broker != nullptr, "broker is null");
    give_summary(broker->broker.write_timeline(ctxbroker::TimelineSink(take)), summary);
  });
}

ctxb_status ctxb_broker_host(ctxb_broker* broker, ctxb_tenant** tenant) {
  if (tenant != nullptr) *tenant = nullptr;
  return answered(broker != nullptr && tenant != nullptr, "broker or tenant is null", [&] {
    *tenant = new ctxb_tenant{broker->broker.host(), &broker->broker, {}, {}};
  });
}
