// SPDX-License-Identifier: Apache-2.0
#include "plugin/broker_impl.hpp"

#include <algorithm>
#include <utility>

#include "context/guard.hpp"
#include "context/open_captures.hpp"
#include "context/realtime_session.hpp"
#include "ctxbroker/error.hpp"
#include "gate/code_map.hpp"
#include "ledger/give_back.hpp"
#include "ledger/ledger.hpp"
#include "observe/repeats.hpp"
#include "plugin/instance.hpp"
#include "plugin/instance_settings.hpp"
#include "plugin/loaded_library.hpp"
#include "plugin/tenant_impl.hpp"
#include "process/float_control.hpp"

namespace ctxbroker::detail {
namespace {

bool is_open(const std::weak_ptr<TenantImpl>& opened) {
  const auto tenant = opened.lock();
  return tenant != nullptr && !tenant->is_closed();
}

std::string counted(std::size_t count, const char* one, const char* many) {
  if (count == 0) return {};
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

// The software device names the owners of memory and of kernels in what it says of faults. It is
// one in the process, whatever the number of brokers, and may outlive this library.
void name_owners(const DriverTable& driver, int brokers) noexcept {
  if (driver.software_ask_owner == nullptr) return;
  static constinit std::mutex mutex;
  static constinit int all = 0;
  const std::lock_guard lock(mutex);
  all += brokers;
  driver.software_ask_owner(all > 0 ? running_owner : nullptr);
}

// The open brokers with a driver. Their tenants share the devices' primary contexts. There is one
// object for the process.
struct Brokers {
  std::mutex mutex;
  std::vector<BrokerImpl*> all;

  static Brokers& one() {
    static auto* const brokers = new Brokers;  // brokers may end after static objects
    return *brokers;
  }
  void add(BrokerImpl& broker) {
    const std::lock_guard lock(mutex);
    all.push_back(&broker);
  }
  void remove(const BrokerImpl& broker) noexcept {
    const std::lock_guard lock(mutex);
    std::erase(all, &broker);
  }
};

// The first lease on the device tries again.
void use_if_possible(UsedDevice& used) {
  try {
    used.use();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::lease_unavailable) throw;
    used.host().log(Severity::warning, "shield", error.what());
  }
}

// Records come from every thread, also in a plug-in's call that has changed how the thread
// computes.
RecordSink with_floats_of_this_thread(RecordSink sink) {
  if (sink == nullptr) return sink;
  return [sink = std::move(sink),
          floats = FloatControl(FloatControl::OfThisThread())](const Record& record) {
    const WithFloatControl of_the_host(floats);
    sink(record);
  };
}

bool is_empty(const DriverLimits& limits) {
  return !limits.pinned_memory && !limits.streams && !limits.events && !limits.graphs &&
         !limits.modules && !limits.contexts;
}

// Another handle of a tenant that the policy's patterns have opened.
std::shared_ptr<TenantImpl> handle_with(std::shared_ptr<TenantImpl> handle,
                                        const TenantOptions& options) {
  const TenantOptions none;
  const bool is_plain = options.lease == none.lease && !options.per_thread_streams &&
                        !options.unload_at_close && options.driver_memory_budget == 0 &&
                        is_empty(options.driver_limits) && options.memory == none.memory &&
                        options.pinned_ahead == 0;
  if (!is_plain) {
    const std::string& name = handle->identity()->name;
    throw Error(
        ErrorKind::invalid_argument,
        "open_tenant: the policy's patterns for libraries have opened tenant " + name +
            " already; write its lease, limits and memory under its name in the policy's by_id",
        {.tenant = name});
  }
  if (options.on_loss) handle->set_loss_callback(options.on_loss);
  return handle;
}

}  // namespace

BrokerImpl::BrokerImpl(BrokerOptions options, std::optional<Driver> driver, GateState gate)
    : options_(std::move(options)),
      recorder_{
          std::make_shared<Recorder>(with_floats_of_this_thread(std::move(options_.records)))},
      host_(std::make_shared<const TenantIdentity>(host_tenant, "host", recorder_.recorder)),
      main_thread_(std::this_thread::get_id()),
      driver_(std::move(driver)),
      gate_(std::move(gate)) {
  if (!driver_) {
    host_blocks_ = std::make_shared<HostBlocks>(nullptr, host_);
    return;
  }
  host_->memory_source = memory_source(options_.host.memory, {}, {});
  host_->pinned_ahead = options_.host.pinned_ahead;
  name_owners(driver_->table, 1);
  leases_.emplace(*driver_, *host_, fault_, options_.ready);
  host_blocks_ = std::make_shared<HostBlocks>(&*leases_, host_);
  placer_.emplace(*leases_);
  // A primary that somebody in the process uses already is one to protect.
  for (const auto& device : driver_->devices) {
    UsedDevice& used = leases_->device(device.ordinal);
    used.set_relief(modules_);
    used.set_end_timeout(options_.end_timeout, this);
    if (used.primary_is_active()) use_if_possible(used);
  }
  Brokers::one().add(*this);
  if (options_.shield_host) watch_primaries(*this);
}

BrokerImpl::~BrokerImpl() {
  stop_watching_primaries(*this);
  Brokers::one().remove(*this);
  if (driver_) name_owners(driver_->table, -1);
}

bool BrokerImpl::shut_down() noexcept {
  if (claims_ != nullptr) claims_->close();
  end_given_up(recorder_.recorder.get(), true);
  stop_watching_primaries(*this);
  Brokers::one().remove(*this);
  host_blocks_->close();
  try {
    if (!leases_ || leases_->shut_down()) return true;
    Brokers::one().add(*this);  // its work still hangs
  } catch (...) {               // NOLINT(bugprone-empty-catch): out of memory: it stays
  }
  recorder_.recorder->close();
  return false;
}

// -1: none of the driver's devices.
int BrokerImpl::ordinal_of(CUdevice device) const noexcept {
  const auto& handles = driver_->handles;
  const auto found = std::find(handles.begin(), handles.end(), device);
  return found != handles.end() ? static_cast<int>(found - handles.begin()) : -1;
}

void BrokerImpl::primary_retained(CUdevice device) noexcept {
  const int ordinal = ordinal_of(device);
  if (ordinal < 0) return;
  UsedDevice& used = leases_->device(ordinal);
  if (used.in_use()) return;
  try {
    used.use();
  } catch (const std::exception& error) {  // the next retain tries again
    host_->log(Severity::warning, "shield", error.what());
  }
}

void BrokerImpl::primary_kept(const char* function, CUdevice device, const void* from) noexcept {
  try {
    const int ordinal = ordinal_of(device);
    const std::string library = library_that_called(from);
    {
      const std::lock_guard lock(kept_mutex_);
      ++kept_primaries_[{function, library, ordinal}];
    }
    const std::uint64_t count = host_->repeats.count(function, library);
    if (!is_told(count)) return;
    host_->log(Severity::warning, "shield", [&] {
      return "device " + std::to_string(ordinal) + ": the driver refused " + function + " from " +
             library + ", which would have destroyed the context that all libraries share" +
             repeats_text(count);
    });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the call is not counted
  }
}

const Driver& BrokerImpl::driver() const {
  if (!driver_) {
    throw Error(ErrorKind::wrong_state,
                "this broker was opened without a driver: it can load and describe plug-ins only");
  }
  return *driver_;
}

UsedDevice& BrokerImpl::used_device(int device) const {
  driver();  // says that there is none
  return leases_->device(device);
}

InstanceSettings BrokerImpl::settings_for(const LoadedLibrary& library, std::size_t index,
                                          const InstanceOptions& options) {
  driver();
  const std::vector<PluginDescription>& plugins = library.descriptions();
  const PluginDescription& plugin = plugins[index];
  std::vector<std::string> ids;
  ids.reserve(plugins.size());
  for (const PluginDescription& one : plugins) ids.push_back(one.id);
  const LeaseOrder lease = lease_order(options.lease, options_.policy, ids);
  const PlacementOrder placement = placement_order(options, options_.policy, plugin);
  return {placer_->choose(*library.tenant(), plugins, placement), lease.choice, lease.by,
          memory_budget(options, options_.policy, plugin), options.job_graphs};
}

std::shared_ptr<LoadedLibrary> BrokerImpl::load(const std::filesystem::path& path) {
  const auto canonical = canonical_library(path);
  const auto [id, is_replaced] = files_.find(canonical);
  if (auto loaded = libraries_[id].lock()) {
    if (is_replaced) {
      loaded->tenant()->log(Severity::warning, "plugin", replaced_text(canonical));
    }
    return loaded;
  }
  std::shared_ptr<const TenantIdentity>& tenant = tenants_[id];
  // A file that was deleted may have left its number to another one.
  if (tenant == nullptr || tenant->name != library_name(canonical)) {
    tenant = std::make_shared<const TenantIdentity>(next_tenant_id(), library_name(canonical),
                                                    recorder_.recorder);
  }
  auto library = make_shared_by_maker<LoadedLibrary>(*this, tenant, canonical);
  libraries_[id] = library;
  return library;
}

std::shared_ptr<TenantImpl> BrokerImpl::open_tenant(std::string name,
                                                    const TenantOptions& options) {
  static_cast<void>(driver());  // throws without one
  if (claims_ != nullptr) {
    if (auto handle = claims_->handle(name)) return handle_with(std::move(handle), options);
  }
  return open_new_tenant(std::move(name), options);
}

std::shared_ptr<TenantImpl> BrokerImpl::open_new_tenant(std::string name,
                                                        const TenantOptions& options) {
  auto tenant = make_shared_by_maker<TenantImpl>(
      *this,
      std::make_shared<const TenantIdentity>(next_tenant_id(), std::move(name), recorder_.recorder),
      options);
  const std::lock_guard lock(opened_mutex_);
  std::erase_if(opened_, [](const auto& one) { return one.expired(); });
  opened_.push_back(tenant);
  opened_names_[tenant->identity()->id.value] = tenant->identity()->name;
  return tenant;
}

void BrokerImpl::claim_libraries() {
  if (options_.policy.libraries.empty()) return;
  if (gate_.mode == GateMode::none) {
    host_->log(Severity::warning, "library",
               "without the gate nobody can tell whose call it is, so the policy's patterns for "
               "libraries are not followed: " +
                   gate_.reason);
    return;
  }
  ClaimingBroker broker;
  broker.open = [this](const std::string& name) {
    const auto tenant = open_new_tenant(name, {});
    return ClaimingTenant{tenant, tenant->identity()};
  };
  // The callback may name what the handles' owner ends now.
  broker.forget_handle = [](TenantImpl& tenant) { tenant.set_loss_callback({}); };
  broker.keep_code = [](TenantImpl& tenant) { tenant.keep_code(); };
  broker.has_late_gate = gate_.mode == GateMode::late;
  claims_ = std::make_shared<ClaimedLibraries>(std::move(broker), options_.policy.libraries);
  add_claims(claims_);
  give_loaded_code_to(*claims_);
}

// The handles have a count of their own, because others own the tenant for a moment: see
// Tenant::close.
std::shared_ptr<TenantImpl> BrokerImpl::host_as_tenant() {
  static_cast<void>(driver());
  auto tenant = host_tenant_.lock();
  if (tenant == nullptr || tenant->is_closed()) {
    tenant = make_shared_by_maker<TenantImpl>(*this, host_, options_.host);
    const std::lock_guard lock(opened_mutex_);
    host_tenant_ = tenant;
    host_handle_.reset();
  }
  auto handle = host_handle_.lock();
  if (handle == nullptr) {
    handle = {tenant.get(), [owner = tenant](TenantImpl*) mutable { owner.reset(); }};
    host_handle_ = handle;
  }
  return handle;
}

void BrokerImpl::add(Instance& instance) {
  const std::lock_guard lock(instances_mutex_);
  instances_.insert(&instance);
}

void BrokerImpl::remove(Instance& instance) noexcept {
  const std::lock_guard lock(instances_mutex_);
  instances_.erase(&instance);
}

void BrokerImpl::keep(std::unique_ptr<Instance> ended) noexcept {
  const std::lock_guard lock(instances_mutex_);
  Instance* const kept = ended.release();
  try {
    kept_.emplace_back(kept);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it stays for ever
  }
}

void BrokerImpl::drop_left_instances() noexcept {
  std::list<std::unique_ptr<Instance>> kept;
  {
    const std::lock_guard lock(instances_mutex_);
    kept.swap(kept_);
  }
  kept.remove_if([](const auto& one) { return one->try_to_end(); });
  const std::lock_guard lock(instances_mutex_);
  kept_.splice(kept_.end(), kept);
}

void BrokerImpl::poll() {
  struct Scope {
    int& depth;
    explicit Scope(int& of) noexcept : depth(of) { ++depth; }
    ~Scope() { --depth; }
  };
  const Scope scope(polls_);
  // In a real-time session, this gives no module, context or memory back to the driver, and does
  // not trim tenants' stores. A poll after the session does it. If an allocation fails, the broker
  // still frees memory: see UsedDevice::relieve.
  const bool gives_back = !RealtimeSession::anywhere();
  look_for_fault();
  if (gives_back) drop_left_instances();
  poll_instances();
  report_losses();
  if (gives_back) {
    end_lost_contexts();
    end_given_up(recorder_.recorder.get(), false);
    host_blocks_->register_all();
  }
  if (leases_) leases_->tell_realtime_calls(false);
  if (claims_ != nullptr) claims_->look();
}

// Nobody tells of a fault of code outside of guards. A job finds its own, with the one who did it.
// One device speaks for all.
void BrokerImpl::look_for_fault() noexcept {
  if (!leases_ || fault_.happened()) return;
  {
    const std::lock_guard lock(instances_mutex_);
    const bool has_jobs = std::any_of(instances_.begin(), instances_.end(),
                                      [](const Instance* one) { return one->in_flight(); });
    if (has_jobs) return;
  }
  for (const DeviceInfo& one : driver_->devices) {
    UsedDevice& used = leases_->device(one.ordinal);
    if (used.in_use()) return used.look_for_fault();
  }
}

// No other thread ends instances meanwhile. What a plug-in calls may end some.
void BrokerImpl::poll_instances() noexcept {
  try {
    std::unique_lock lock(instances_mutex_);
    const std::vector<Instance*> all(instances_.begin(), instances_.end());
    for (Instance* const instance : all) {
      if (!instances_.contains(instance)) continue;
      lock.unlock();
      instance->poll();
      lock.lock();
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next poll does it
  }
}

std::vector<std::shared_ptr<TenantImpl>> BrokerImpl::opened_now() const {
  const std::lock_guard lock(opened_mutex_);
  std::vector<std::shared_ptr<TenantImpl>> open;
  for (const auto& opened : opened_) {
    if (auto tenant = opened.lock()) open.push_back(std::move(tenant));
  }
  return open;
}

// Reports the losses of the tenants that are open now. A callback may open and close others.
void BrokerImpl::report_losses() {
  std::vector<std::shared_ptr<TenantImpl>> open = opened_now();
  open.push_back(host_tenant_.lock());
  for (const auto& tenant : open) {
    if (tenant != nullptr) tenant->report_losses();
  }
}

void BrokerImpl::end_lost_contexts() noexcept {
  if (leases_) leases_->end_left();
  for (const auto& [file, library] : libraries_) {
    if (const auto loaded = library.lock()) loaded->end_lost_contexts();
  }
  try {
    for (const auto& tenant : opened_now()) tenant->end_lost_contexts();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next poll does it
  }
}

std::size_t BrokerImpl::count_suspects() {
  auto tenants = opened_now();
  {
    const std::lock_guard lock(opened_mutex_);
    tenants.push_back(host_tenant_.lock());
  }
  auto count = std::count_if(tenants.begin(), tenants.end(), [](const auto& tenant) {
    return tenant != nullptr && tenant->has_been_inside();
  });
  {
    const std::lock_guard lock(instances_mutex_);
    count += std::count_if(instances_.begin(), instances_.end(), [](const Instance* one) {
      return one->in_flight() || one->phase() == Phase::activating;
    });
  }
  for (const auto& lease : leases_->all()) {  // what does not end goes on, whoever has gone
    if (lease->state() == LeaseState::hung) ++count;
  }
  if (fault_.ended_hung_work()) ++count;
  return static_cast<std::size_t>(count);
}

// Work in a device's primary context is in the way of all brokers' calls there. The leases are used
// under the lock, so that no broker ends before one of its leases.
template <typename Use>
void BrokerImpl::use_leases_in(const HungWork& family, Use&& use) {
  std::optional<int> primary;
  for (const auto& device : driver_->devices) {
    if (leases_->device(device.ordinal).family().get() == &family) primary = device.ordinal;
  }
  const std::lock_guard lock(Brokers::one().mutex);
  for (const BrokerImpl* const broker : Brokers::one().all) {
    if (broker->driver_->info.path != driver_->info.path) continue;
    for (const auto& lease : broker->leases_->all()) {
      const bool is_in_primary =
          primary && lease->kind() != LeaseKind::private_own && lease->device_ordinal() == *primary;
      if (is_in_primary || lease->family().get() == &family) use(*lease);
    }
  }
}

std::vector<std::string> BrokerImpl::busy_in(const HungWork& family) {
  std::vector<std::string> names;
  const BesideCaptures beside(driver_->table);
  use_leases_in(family, [&](Lease& lease) {
    const bool has_work = ledger().any_stream_in(
        lease.generation(), [&](CUstream stream) { return is_busy(lease.table(), stream); });
    if (has_work || lease.has_work_in_default_streams()) names.push_back(lease.tenant().name);
  });
  return names;
}

// All shared leases of a device have one default stream.
bool BrokerImpl::is_anybody_busy(const HungWork& family) {
  if (!busy_in(family).empty()) return true;
  std::optional<bool> is_busy;
  use_leases_in(family, [&](Lease& lease) {
    if (!is_busy && lease.kind() == LeaseKind::shared) is_busy = lease.is_default_stream_busy();
  });
  return is_busy.value_or(false);
}

std::size_t BrokerImpl::suspects() {
  const std::size_t now = count_suspects();
  const std::lock_guard lock(instances_mutex_);
  if (!suspects_) suspects_ = now;
  return *suspects_;
}

std::string BrokerImpl::alive() const {
  std::size_t libraries = 0;
  for (const auto& [id, library] : libraries_) libraries += library.expired() ? 0 : 1;
  std::size_t tenants = is_open(host_tenant_) ? 1 : 0;
  for (const auto& tenant : opened_now()) {
    if (tenant->is_closed()) continue;
    const bool is_idle =
        keeps(*tenant) && !claims_->is_in_use(*tenant) && !tenant->is_anybody_inside();
    tenants += is_idle ? 0 : 1;
  }
  std::unique_lock lock(instances_mutex_);
  const std::size_t instances = instances_.size();
  lock.unlock();
  std::string text;
  for (const auto& part : {counted(tenants, "tenant", "tenants"),
                           counted(static_cast<std::size_t>(graphs_), "graph", "graphs"),
                           counted(instances, "plug-in instance", "plug-in instances"),
                           counted(libraries, "plug-in library", "plug-in libraries")}) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

}  // namespace ctxbroker::detail
