// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/broker.hpp"

#include <utility>
#include <vector>

#include "ctxbroker/error.hpp"
#include "gate/tools.hpp"
#include "observe/timeline.hpp"
#include "observe/whole_file.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"
#include "plugin/loaded_library.hpp"
#include "plugin/option_check.hpp"
#include "plugin/run_policy.hpp"

namespace ctxbroker {
namespace {

void say_driver(const detail::BrokerImpl& broker) {
  const DriverInfo& info = broker.driver().info;
  broker.host().log(Severity::info, "driver",
                    std::string(to_string(info.kind)) + " driver " + info.path + ", CUDA " +
                        std::to_string(info.version / 1000) + "." +
                        std::to_string(info.version % 1000 / 10) + ": " + info.reason);
  for (const DeviceInfo& device : broker.driver().devices) {
    if (!device.mps) continue;
    broker.host().log(
        Severity::warning, "mps",
        "this process uses device " + std::to_string(device.ordinal) +
            " through an MPS server: a fault of one of the server's clients ends CUDA "
            "in all of them, and here too");
  }
}

// Keeps a broker that ended while it was used, or while something of it waits for work that hangs.
// Until the process ends, and where a leak checker finds it.
void abandon(std::unique_ptr<detail::BrokerImpl> broker) noexcept {
  try {
    static auto* const all = new std::vector<std::unique_ptr<detail::BrokerImpl>>();
    all->push_back(std::move(broker));
  } catch (...) {
    static_cast<void>(broker.release());  // NOLINT(bugprone-unused-return-value): the same
  }
}

}  // namespace

Broker::Broker(std::unique_ptr<detail::BrokerImpl> impl) : impl_(std::move(impl)) {}

Broker Broker::open(BrokerOptions options) {
  options = detail::checked(std::move(options));
  options.policy = detail::with_policy_of_run(std::move(options.policy));
  detail::DriverRequest request{options.driver, options.software_device};
  request.load = options.use_gate ? detail::load_driver_behind_gate : detail::load_driver_past_gate;
  detail::Driver driver = detail::open_driver(request);
  detail::GateState gate{GateMode::none, "the host opened the broker without it"};
  if (options.use_gate) gate = detail::enforce_gate(driver.info.path);
  // A late gate does not see how other code than that of tenants changes a thread's context.
  driver.table.current_is_watched = gate.mode == GateMode::before_driver;
  Broker broker(
      std::make_unique<detail::BrokerImpl>(std::move(options), std::move(driver), std::move(gate)));
  say_driver(*broker.impl_);
  broker.impl_->claim_libraries();
  detail::attach_profiler();
  return broker;
}

Broker Broker::open_without_driver(BrokerOptions options) {
  return Broker(
      std::make_unique<detail::BrokerImpl>(detail::checked(std::move(options)), std::nullopt));
}

Broker::Broker(Broker&&) noexcept = default;

Broker& Broker::operator=(Broker&& other) noexcept {
  Broker old(std::move(*this));  // ends what stood here, with the same care
  impl_ = std::move(other.impl_);
  return *this;
}

Broker::~Broker() {
  if (impl_ == nullptr) return;
  if (!impl_->is_in_its_process()) {
    abandon(std::move(impl_));
    return;
  }
  impl_->drop_left_instances();
  try {
    std::string alive = impl_->alive();
    if (alive.empty() && impl_->is_in_record()) alive = "its records callback";
    if (alive.empty()) {
      close();
      return;
    }
    impl_->host().log(Severity::error, "broker",
                      "the broker ends while it is still used by " + alive +
                          "; it stays in memory until the process ends");
  } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor; out of memory for a log line
  }
  abandon(std::move(impl_));
}

void Broker::close() {
  if (impl_ == nullptr) return;
  if (!impl_->is_in_its_process()) return abandon(std::move(impl_));
  if (impl_->is_in_record()) {
    throw Error(ErrorKind::wrong_state,
                "the broker cannot be closed inside its records callback; close it when the "
                "callback has returned");
  }
  if (impl_->is_polling()) {
    throw Error(
        ErrorKind::wrong_state,
        "the broker cannot be closed inside a loss callback; close it when poll has returned");
  }
  impl_->drop_left_instances();
  if (const std::string alive = impl_->alive(); !alive.empty()) {
    throw Error(ErrorKind::wrong_state,
                "the broker cannot be closed while it is used by " + alive + "; end them first");
  }
  if (!impl_->shut_down()) abandon(std::move(impl_));
  impl_.reset();
}

bool Broker::has_driver() const noexcept {
  return impl_ != nullptr && impl_->has_driver();
}

const DriverInfo& Broker::driver() const& {
  return open_impl().driver().info;
}

const std::vector<DeviceInfo>& Broker::devices() const& {
  return open_impl().driver().devices;
}

PluginLibrary Broker::load(const std::filesystem::path& path) {
  return PluginLibrary(open_impl().load(path));
}

GateInfo Broker::gate() const {
  const detail::GateState& gate = open_impl().gate();
  const bool in_force = gate.mode != GateMode::none;
  GateInfo info{in_force, gate.reason, gate.mode, detail::tools_in_process(in_force)};
  if (in_force) {
    info.cuda_version = detail::cuda_version_of_gate();
    info.unknown_functions = detail::unknown_functions();
  }
  return info;
}

void Broker::use_device(int device) {
  open_impl().used_device(device).use();
  open_impl().leases().filler().wake();  // contexts are to stand ready there now
}

ShieldInfo Broker::shield(int device) const {
  const detail::UsedDevice& used = open_impl().used_device(device);
  const detail::Shield shield = used.shield();
  return {used.in_use(), shield.up, shield.reason};
}

PluginInstance Broker::create(const PluginLibrary& library, std::string_view plugin,
                              const InstanceOptions& options) {
  detail::BrokerImpl& broker = open_impl();
  if (library.impl_ == nullptr || &library.impl_->broker() != &broker) {
    throw Error(ErrorKind::invalid_argument, "the library was loaded by another broker");
  }
  detail::check(options);
  const std::size_t index = library.impl_->index_of(plugin);
  return PluginInstance(detail::Instance::make(
      broker, library.impl_, index, broker.settings_for(*library.impl_, index, options)));
}

Tenant Broker::open_tenant(std::string name, const TenantOptions& options) {
  detail::check_tenant_name(name);
  detail::check(options);
  return Tenant(open_impl().open_tenant(std::move(name), options));
}

Tenant Broker::host() {
  return Tenant(open_impl().host_as_tenant());
}

std::vector<LeaseInfo> Broker::leases() const {
  detail::BrokerImpl& broker = open_impl();
  std::vector<LeaseInfo> infos;
  if (!broker.has_driver()) return infos;
  for (const auto& lease : broker.leases().all()) infos.push_back(lease->info());
  return infos;
}

void Broker::begin_realtime() {
  if (open_impl().has_driver()) impl_->leases().begin_realtime();
}

void Broker::end_realtime() {
  if (!open_impl().has_driver() || impl_->leases().end_realtime()) return;
  throw Error(ErrorKind::wrong_state,
              "end_realtime: no begin_realtime is open; call each of them once for the other");
}

bool Broker::wait_until_ready() {
  return !open_impl().has_driver() || impl_->leases().filler().wait_until_filled();
}

bool Broker::force_loss(TenantId tenant, int device, const std::string& reason) {
  detail::BrokerImpl& broker = open_impl();
  const auto lease = broker.has_driver() ? broker.leases().find(tenant, device) : nullptr;
  if (lease == nullptr) return false;
  lease->give_up(reason);
  return true;
}

std::size_t Broker::unload_idle_modules(int device) {
  const std::size_t waiting = open_impl().used_device(device).end_for_memory();
  return waiting + impl_->modules().unload_idle(device).modules;
}

void Broker::poll() {
  open_impl().poll();
}

BrokerMetrics Broker::metrics() const {
  return open_impl().metrics();
}

void Broker::start_timeline(const TimelineOptions& options) {
  open_impl();
  detail::start_recording(options.memory_bytes);
}

void Broker::stop_timeline() noexcept {
  detail::stop_recording();
}

TimelineSummary Broker::write_timeline(const std::filesystem::path& path) {
  TimelineSummary summary;
  detail::write_whole_file(path, [&](const TimelineSink& sink) { summary = write_timeline(sink); });
  return summary;
}

TimelineSummary Broker::write_timeline(const TimelineSink& sink) {
  detail::check(sink);
  const detail::TenantNames names = open_impl().tenant_names();
  detail::stop_recording();
  return detail::write_trace(detail::recorded(), names, sink);
}

detail::BrokerImpl& Broker::open_impl() const {
  if (impl_ == nullptr) throw Error(ErrorKind::wrong_state, "the broker is closed");
  return *impl_;
}

}  // namespace ctxbroker
