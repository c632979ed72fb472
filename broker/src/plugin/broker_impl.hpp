// SPDX-License-Identifier: Apache-2.0
// The object behind ctxbroker::Broker: the driver, the tenants, their leases, and a count of what
// is alive. Its address is stable; libraries, instances and graphs point to it.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "context/host_blocks.hpp"
#include "context/lease_table.hpp"
#include "ctxbroker/broker.hpp"
#include "driver/driver.hpp"
#include "gate/gate.hpp"
#include "gate/primary_watch.hpp"
#include "module/module_service.hpp"
#include "observe/recorder.hpp"
#include "plugin/claimed_libraries.hpp"
#include "plugin/instance_settings.hpp"
#include "plugin/library_file.hpp"
#include "plugin/placer.hpp"
#include "process/copy_crew.hpp"
#include "process/environment.hpp"
#include "process/maker.hpp"

namespace ctxbroker::detail {

class Instance;
class LoadedLibrary;
class TenantImpl;

// [main] thread, but for what says otherwise.
class BrokerImpl final : private BusyTenants, private PrimaryWatch {
 public:
  BrokerImpl(BrokerOptions options, std::optional<Driver> driver, GateState gate = {});
  ~BrokerImpl() override;
  BrokerImpl(const BrokerImpl&) = delete;
  BrokerImpl& operator=(const BrokerImpl&) = delete;

  // False: a forked process has this copy, and leaves all of it alone.
  bool is_in_its_process() const noexcept { return maker_.is_this_process(); }
  const std::string& host_name() const noexcept { return options_.host_name; }
  const std::string& host_version() const noexcept { return options_.host_version; }
  const TenantIdentity& host() const noexcept { return *host_; }
  std::thread::id main_thread() const noexcept { return main_thread_; }

  std::chrono::milliseconds job_timeout() const noexcept { return options_.job_timeout; }
  std::chrono::milliseconds end_timeout() const noexcept { return options_.end_timeout; }
  const ProcessFault& fault() const noexcept { return fault_; }
  // Counts the suspects that may have work on the device: instances with work in flight, tenants
  // that have been inside a lease, and hung leases. An instance that is being activated may have
  // begun work too. Any thread. Throws std::bad_alloc.
  std::size_t count_suspects();
  // After a fault: the same, counted once, at the first question. Instances that end later do not
  // make the others more suspicious. Throws std::bad_alloc.
  std::size_t suspects();

  bool has_driver() const noexcept { return driver_.has_value(); }
  const GateState& gate() const noexcept { return gate_; }
  const Driver& driver() const;  // throws Error (wrong_state) when there is none

  UsedDevice& used_device(int device) const;  // throws Error: wrong_state (no driver), no_device
  const Policy& policy() const noexcept { return options_.policy; }
  // Puts options, policy and defaults together and places the instance. Throws Error: wrong_state.
  InstanceSettings settings_for(const LoadedLibrary& library, std::size_t index,
                                const InstanceOptions& options);

  // The target for calls of a plug-in's [no-ctx] functions. No context is current there.
  GuardTarget nowhere() const noexcept { return {driver_ ? &driver_->table : nullptr, nullptr, 0}; }

  LoadedFiles& files() noexcept { return files_; }  // any thread
  std::shared_ptr<LoadedLibrary> load(const std::filesystem::path& path);
  std::shared_ptr<TenantImpl> open_tenant(std::string name, const TenantOptions& options);
  // The same for the claims, which look for an open one themselves.
  std::shared_ptr<TenantImpl> open_new_tenant(std::string name, const TenantOptions& options);
  std::shared_ptr<TenantImpl> host_as_tenant();
  // Opens the tenants that the policy's patterns name, and gives them their libraries. Without the
  // gate nobody can tell libraries apart, and a record says so. Throws Error.
  void claim_libraries();
  // The tenant stays open until the broker closes, and others have handles of it.
  bool keeps(const TenantImpl& tenant) const { return claims_ != nullptr && claims_->has(tenant); }
  const ClaimedLibraries* claims() const noexcept { return claims_.get(); }  // or null
  LeaseTable& leases() noexcept { return *leases_; }                         // with a driver
  CopyCrew& copy_crew() noexcept { return copy_crew_; }                      // any thread
  HostBlocks& host_blocks() noexcept { return *host_blocks_; }               // any thread
  ModuleService& modules() noexcept { return modules_; }

  // Adds and removes an instance that is alive, so that close can refuse and poll can reach it.
  void add(Instance& instance);
  void remove(Instance& instance) noexcept;
  // Keeps an instance until it has ended and the threads of its plug-in have left it.
  void keep(std::unique_ptr<Instance> ended) noexcept;
  void drop_left_instances() noexcept;
  void poll();                                              // see Broker::poll
  bool is_polling() const noexcept { return polls_ != 0; }  // a loss callback runs
  bool is_in_record() const noexcept { return recorder_.recorder->speaking_here() != 0; }
  void add_graph() noexcept { ++graphs_; }
  void remove_graph() noexcept { --graphs_; }

  // When nothing is alive any more. False: something has to wait for work that hangs, so that this
  // stays until the process ends; it does not speak to the host any more.
  bool shut_down() noexcept;

  // The names of tenants by their ids, with the host's, for what is written about tenants.
  std::map<std::uint32_t, std::string> tenant_names() const;
  BrokerMetrics metrics() const;

  // "2 plug-in instances, 1 graph"; empty when nothing is alive.
  std::string alive() const;

 private:
  std::vector<std::string> busy_in(const HungWork& family) override;
  bool is_anybody_busy(const HungWork& family) override;
  void primary_retained(CUdevice device) noexcept override;
  void primary_kept(const char* function, CUdevice device, const void* from) noexcept override;
  int ordinal_of(CUdevice device) const noexcept;
  // Uses each lease that works in the family, of all brokers of the process.
  template <typename Use>
  void use_leases_in(const HungWork& family, Use&& use);
  void look_for_fault() noexcept;
  void poll_instances() noexcept;
  std::vector<std::shared_ptr<TenantImpl>> opened_now() const;
  void report_losses();  // of all tenants: see TenantImpl
  void end_lost_contexts() noexcept;

  const Maker maker_;
  KeptEnvironment environment_;  // as it was before plug-ins came in
  BrokerOptions options_;
  // Ends after all that speaks to the host. Threads of plug-ins may still own the recorder then.
  struct OpenRecorder {
    std::shared_ptr<Recorder> recorder;
    ~OpenRecorder() { recorder->close(); }
  } recorder_;
  // Shared, because leases of the host may outlive the last Tenant object for it.
  std::shared_ptr<const TenantIdentity> host_;
  std::thread::id main_thread_;
  std::optional<Driver> driver_;
  GateState gate_;
  ProcessFault fault_;
  CopyCrew copy_crew_;
  ModuleService modules_;             // before the leases, which ask it for memory
  std::optional<LeaseTable> leases_;  // with a driver
  std::optional<Placer> placer_;      // likewise
  // Objects of the host may outlive the broker.
  std::shared_ptr<HostBlocks> host_blocks_;
  std::shared_ptr<ClaimedLibraries> claims_;  // null: the policy has no patterns
  std::map<FileId, std::shared_ptr<const TenantIdentity>>
      tenants_;  // for ever: a file keeps its tenant
  std::map<FileId, std::weak_ptr<LoadedLibrary>> libraries_;
  LoadedFiles files_;
  // Of the next two, and taken last: a library's constructor may lead to a new tenant.
  mutable std::mutex opened_mutex_;
  std::vector<std::weak_ptr<TenantImpl>> opened_;      // by the host, or for the policy's patterns
  std::map<std::uint32_t, std::string> opened_names_;  // for ever: a timeline may name them still
  std::weak_ptr<TenantImpl> host_tenant_;              // changed under it, too
  // The handle of Broker::host: its count is that of the host's Tenant objects.
  std::weak_ptr<TenantImpl> host_handle_;
  // Of the next three. No foreign code runs and nobody waits while it is held.
  mutable std::mutex instances_mutex_;
  std::set<Instance*> instances_;
  std::list<std::unique_ptr<Instance>> kept_;
  std::optional<std::size_t> suspects_;
  // The calls that primary_kept has counted, by function, library and device.
  mutable std::mutex kept_mutex_;
  std::map<std::tuple<std::string, std::string, int>, std::uint64_t> kept_primaries_;
  std::atomic<int> graphs_{0};
  int polls_ = 0;  // a loss callback may poll again
};

}  // namespace ctxbroker::detail
