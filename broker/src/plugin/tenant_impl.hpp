// SPDX-License-Identifier: Apache-2.0
// The life of a tenant: its leases, the libraries loaded for it, and what it holds through the
// broker. Plug-in libraries and tenants that a host opens are both made of it.
#pragma once

#include <atomic>
#include <boost/dll/shared_library.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "context/guard.hpp"
#include "context/lease_table.hpp"
#include "context/shared_memory.hpp"
#include "ctxbroker/tenant.hpp"
#include "gate/gated_tenant.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

class BrokerImpl;
class LoaderTurn;

struct LibraryImage {
  std::filesystem::path path;
  boost::dll::shared_library library;  // not loaded any more after its end
  Extent code{};                       // where it lies
};

// Any thread may ask for a lease; the rest is serialised by the caller.
class TenantImpl final : private LeaseSource {
 public:
  // `broker` outlives the tenant.
  TenantImpl(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> identity,
             TenantOptions options);
  ~TenantImpl() override;
  TenantImpl(const TenantImpl&) = delete;
  TenantImpl& operator=(const TenantImpl&) = delete;

  const std::shared_ptr<const TenantIdentity>& identity() const noexcept { return identity_; }
  BrokerImpl& broker() const noexcept { return broker_; }

  // Learns which plug-ins its library has. From now on, the policy for them counts. `sharing`: see
  // memory_source.
  void know_plugins(const std::vector<std::string>& ids,
                    const std::vector<std::string>& sharing = {});

  // Loads a library under guard, with no context current. Throws Error (plugin_load), and then the
  // loader has its reference back; also when another library is still being loaded or unloaded
  // after `end_timeout`, by whomever. Unloaded, or left resident, by dismiss or at close. `stays`:
  // it does not leave, whoever closes it.
  std::shared_ptr<LibraryImage> adopt(const std::filesystem::path& canonical,
                                      const AdoptOptions& options = {}, bool stays = false);
  // `may_go`: it is unloaded. It stays, and the host is told why, while something may still call
  // it, or if another library is still being loaded or unloaded after `end_timeout`.
  void dismiss(LibraryImage& library, bool may_go) noexcept;

  // The lease in force on a device, made when there is none or it is lost. It exists until the
  // tenant does not, so that a guard can stand on it. Throws Error.
  Lease& lease(int device) {
    Lease* lease = current(device);
    return lease != nullptr && !lease->lost() ? *lease : *renew(device);
  }
  // The same for a guard that could not enter `refused`, because of `status`. A lease that is being
  // closed is asked again when that is decided. Throws Error.
  [[gnu::cold, gnu::noinline]] Lease& lease_after_refusal(Lease& refused, CUresult status);
  // Records the status that a driver call of the tenant's own code returned. Returns the lease's
  // state.
  LeaseState report_status(CUresult status, int device) noexcept;

  CUdeviceptr allocate(std::uint64_t bytes, int device);
  // Device memory that processes share: see DeviceMemory.
  SharedMemory allocate_shareable(std::uint64_t bytes, int device);
  SharedMemory import_memory(int descriptor, std::uint64_t bytes, int device);
  ExportedMemory export_memory(CUdeviceptr address);
  void release(CUdeviceptr address);
  CUstream create_stream(int device);
  void destroy_stream(CUstream stream);
  void enable_peer_access(int device, int peer);
  std::uint64_t memory_bytes() const noexcept { return identity_->memory.held(); }

  // Somebody has been in one of its leases: what was begun there may be under way still, for
  // nobody knows when it ends.
  bool has_been_inside() const noexcept;

  // Calls TenantOptions::on_loss, without a lock, once for each generation that was lost. An
  // exception of the callback's ends it; the next call goes on behind that generation.
  void report_losses();
  // Takes the place of TenantOptions::on_loss. May be empty. Any thread.
  void set_loss_callback(LossCallback callback);
  // Its code stays in the process when it closes, with what the code still uses. [main] thread.
  void keep_code() noexcept { resident_ = true; }
  // Returns whether a thread is inside one of its leases. Any thread.
  bool is_anybody_inside() const noexcept;

  // Ends the contexts of private leases that are lost and that nothing can use any more; the others
  // end with the tenant. Any thread that may wait for the driver.
  void end_lost_contexts() noexcept;

  // Lets no thread but this one into its leases any more, and ends everything. Throws Error
  // (wrong_state), and all is as before, while a guard stands in one of them or a graph uses it.
  void close();
  bool unloads_at_close() const noexcept { return options_.unload_at_close; }
  bool is_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  // Lends the tenant to a graph with ports in its memory: the tenant cannot be closed while the
  // result exists. Throws Error (wrong_state).
  static std::shared_ptr<TenantImpl> lend(const std::shared_ptr<TenantImpl>& tenant);

 private:
  // Returns what guards of the tenant stand for. Null: the gate is not in force, this is the host,
  // or the tenant is closed and another one has its code.
  GatedTenant* gated() const noexcept {
    GatedTenant* const gated = identity_->gated.load(std::memory_order_acquire);
    return gated != nullptr && &gated->identity() == identity_.get() ? gated : nullptr;
  }
  void open_left_code(const void* code);
  void take_code(const LibraryImage& image);
  // Unloads it under guard. Returns false if others have closed it too often.
  bool unload(LibraryImage& library) noexcept;
  // Undoes the load of a library that does not become the tenant's. `was_here`: it was in the
  // process before.
  void return_to_loader(LibraryImage& library, bool was_here) noexcept;
  void say_shared_variables(const LibraryImage& image);
  std::vector<Extent> code_that_may_leave(const LibraryImage& library);  // throws std::bad_alloc
  void leave_behind(LibraryImage& library, bool should_go, const LoaderTurn& turn) noexcept;
  // Returns whether something was left. Throws std::bad_alloc.
  bool report_what_is_left(const LibraryImage& library);
  std::vector<CUcontext> own_contexts();  // of its leases; likewise
  bool wait_for(Lease& lease, CUstream stream) noexcept;
  std::string what_may_call_code();
  using Leases = std::vector<std::shared_ptr<Lease>>;
  bool wait_for_work(const Leases& leases) noexcept;
  void wait_for_other_devices(const Leases& leases, int device) noexcept;
  // The holder of the things that the host makes for the tenant.
  Holder holder() const noexcept { return {.tenant = identity_->id, .origin = Origin::host_api}; }
  SharedMemory record_shared(const std::shared_ptr<Lease>& lease, const SharedMemory& memory,
                             Budget* budget);
  void close_to_users();
  void end_leases() noexcept;
  struct DeviceEntry {
    std::atomic<Lease*> current{nullptr};
  };
  Lease* current(int device) const noexcept {  // null: none yet
    const auto index = static_cast<std::size_t>(device);
    if (device < 0 || index >= by_device_.size()) return nullptr;
    return by_device_[index].current.load(std::memory_order_acquire);
  }
  void give_back_what_is_left() noexcept;
  void give_back_host_things() noexcept;
  void keep_primaries(GatedTenant& gated);

  // For the gate.
  CUresult lease(int device, TranslatedLease* lease) noexcept override;
  std::shared_ptr<Lease> current_lease(int device) noexcept override;
  std::shared_ptr<Lease> find(const std::function<bool(const Lease&)>& matches) noexcept override;
  UsedDevice& device(int ordinal) noexcept override;
  [[gnu::cold, gnu::noinline]] std::shared_ptr<Lease> renew(int device);
  void check_open() const;
  std::shared_ptr<Lease> owned(int device);

  BrokerImpl& broker_;
  std::shared_ptr<const TenantIdentity> identity_;
  TenantOptions options_;
  bool told_of_limits_ = false;
  bool resident_ = false;               // code of the tenant stays in the process
  bool work_hangs_ = false;             // it did not end in its time, when the tenant was closed
  std::vector<DeviceEntry> by_device_;  // by device
  std::atomic<bool> closed_{false};
  std::atomic<int> graphs_{0};  // to which it is lent
  mutable std::mutex mutex_;    // of all below
  std::thread::id closing_by_;  // its close has begun, and cannot be refused any more
  std::vector<std::shared_ptr<Lease>>
      leases_;  // every one that a guard may stand on, of all generations
  std::set<std::uint64_t> reported_losses_;  // their generations
  std::vector<std::shared_ptr<LibraryImage>> libraries_;
};

}  // namespace ctxbroker::detail
