// SPDX-License-Identifier: Apache-2.0
// The state of a device in use: the primary context, the shield that keeps it from being destroyed,
// and the multiprocessors that green leases are cut from. It creates and ends the contexts of
// leases.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "context/borrowers.hpp"
#include "context/device_access.hpp"
#include "context/hung_work.hpp"
#include "context/lease_context.hpp"
#include "context/memory_stores.hpp"
#include "context/multiprocessor_split.hpp"
#include "context/primary_context.hpp"

namespace ctxbroker::detail {

// Whoever can free device memory when an allocation fails.
class MemoryRelief {
 public:
  virtual ~MemoryRelief() = default;
  // On any thread, inside any guard. True when something was given up, so that the allocation that
  // failed is worth another try.
  virtual bool relieve(int device) noexcept = 0;
};

// One per broker and device. Any thread; the slow paths take a lock, the queries do not. No driver
// call that may wait for work on the device is made under the lock: see HungWork::make.
class UsedDevice : private BusyTenants {
 public:
  // Borrows all its arguments; they must outlive this object.
  UsedDevice(const Driver& driver, int ordinal, const TenantIdentity& host, ProcessFault& fault);
  ~UsedDevice() override;
  UsedDevice(const UsedDevice&) = delete;
  UsedDevice& operator=(const UsedDevice&) = delete;

  int ordinal() const noexcept { return link_.ordinal; }
  const Driver& driver() const noexcept { return link_.driver; }
  ProcessFault& fault() const noexcept { return link_.fault; }
  const TenantIdentity& host() const noexcept { return link_.host; }

  // Retains the primary context and raises the shield, unless both exist already. Returns the
  // generation of the primary context. The broker does not touch a device before this call.
  // Throws Error: driver_call, out_of_memory, context_lost; lease_unavailable when the driver waits
  // for work on the device and makes no shield in time. With `private_only`, what is to be made
  // does not wait for that work: then the shield is left to the next use.
  std::uint64_t use(bool private_only = false);
  bool in_use() const noexcept { return primary_.generation() != 0; }
  // Returns whether another part of the process has made the primary context already.
  bool primary_is_active() const noexcept { return primary_.is_active(); }

  // After use.
  CUcontext primary() const noexcept { return primary_.context(); }
  Shield shield() const;
  bool offers_green() const;  // whether this driver and device give green contexts

  // Returns the generation of the primary context; see PrimaryContext.
  std::uint64_t primary_generation() const noexcept { return primary_.generation(); }
  bool primary_is_shielded(std::uint64_t generation) const noexcept {
    return primary_.is_shielded(generation);
  }
  bool primary_is_current(std::uint64_t generation) noexcept {
    return primary_.is_current(generation);
  }
  // Records that somebody destroyed this generation of the primary context. The next `use` begins
  // another one.
  void lose_primary(std::uint64_t generation) noexcept { primary_.lose(generation); }
  void check_primary() noexcept { primary_.check(); }
  // Asks the driver whether CUDA has ended in the process, if the device is in use. That waits for
  // nothing.
  void look_for_fault() noexcept;

  // Sets how long the driver's calls may wait for work that may be hung, and who knows whose work
  // that is (borrowed, or null). Call it before the device is used.
  void set_end_timeout(std::chrono::milliseconds limit, BusyTenants* busy = nullptr);
  // The family of the primary context and its green ones.
  const std::shared_ptr<HungWork>& family() const noexcept { return family_; }
  // Returns whether the making of a context waits for work, or would have to.
  bool is_making_held_up() const noexcept { return family_->any() || private_maker_->any(); }
  // Makes a family for a private context. Throws std::bad_alloc.
  std::shared_ptr<HungWork> make_family();
  // Returns all families, the primary context's first. Throws std::bad_alloc.
  std::vector<std::shared_ptr<HungWork>> families() const;
  // Ends everything that the broker holds of the device. Returns false when that is put off; then
  // this object must stay alive.
  bool shut_down();
  // Keeps the primary context until the process ends, because something in it outlives the broker.
  void keep_primary() noexcept { keeps_primary_.store(true, std::memory_order_release); }

  // Sets who is asked to free memory when device memory is short. Borrows it. Call it before the
  // device is used.
  void set_relief(MemoryRelief& relief) noexcept { relief_ = &relief; }
  // Gives back unused memory of tenants' stores, unloads the modules that wait for that, and asks
  // for memory. Returns true when some was freed, so that a failed allocation can be tried again.
  // In a real-time session, no module is unloaded.
  bool relieve() const noexcept;
  // The stores of all tenants: of device memory, and of pinned memory.
  MemoryStores& memory_stores() const noexcept { return stores_; }
  // Ends the stores that nobody has any more. If work still runs on the device, end_left does it.
  void end_unowned_stores() noexcept;
  // Returns the bytes of device memory that they keep and that tenants do not use.
  std::uint64_t unused_of_stores() const noexcept { return stores_.unused(primary_.generation()); }
  void free_what_is_done() const noexcept { stores_.free_what_is_done(primary_.generation()); }

  // Creates the context that `choice` asks for, which must not be automatic. It stands on the
  // primary of `generation`, which `use` has returned. `left` is the partition of the lost lease
  // before it: the context gets that if it has the right size, and otherwise it is free again.
  // Throws Error: driver_call, out_of_memory, lease_unavailable (too few multiprocessors are free,
  // or the driver waits for work on the device and makes no context in time).
  LeaseContext make(const LeaseChoice& choice, std::uint64_t generation, Groups left,
                    CallOwner owner);
  // The limit for it counts from `since`. CUDA_ERROR_NOT_READY: the driver waits for work on the
  // device.
  CUresult make_sibling(const LeaseContext& of, CUgreenCtx* green, CUcontext* context,
                        std::chrono::steady_clock::time_point since) noexcept;
  // Ends a context that `make` created; its multiprocessors stay taken. With `again`, a green
  // context becomes a spare for the next lease instead, because drivers were seen
  // that lose 4 MiB for each destroyed green context until the primary context ends.
  CUresult end(const LeaseContext& context, bool again) noexcept;

  // Creates one spare context for a lease of this kind (green over all multiprocessors, or private)
  // and fills in how much device memory it took, or 0 when that is unknown. A context that took
  // more than `most` is ended at once. Call it after `use`.
  CUresult make_spare(LeaseKind kind, std::uint64_t most, std::uint64_t* bytes) noexcept;
  std::size_t spares(LeaseKind kind) const;
  // Keeps an ending back until no thread borrows the lease: see end_left. Throws std::bad_alloc.
  void end_when_left(std::shared_ptr<Borrowers> lease, std::shared_ptr<HungWork> family,
                     Ending ending);
  // Performs the endings of leases that all threads have left meanwhile. Costs one atomic load if
  // none was kept back.
  void end_left() noexcept;
  // Lists the endings that are kept back. Throws std::bad_alloc.
  std::vector<PutOff> kept_back() const;
  // A thing in the primary context that nobody uses any more. The driver would wait for all running
  // kernels when it ends it.
  struct LateEnding {
    Ending ending;                     // its `call` is made in the primary context
    std::uint64_t generation = 0;      // of the primary context
    const char* failed = "";           // as for DeviceAccess::report_failed_end
    bool frees_device_memory = false;  // it also ends when device memory is short
  };
  // Keeps it until nothing runs in the primary context. `ending.after` is called when it has ended,
  // and a failure is reported here. Throws std::bad_alloc; then it is not kept.
  void end_when_idle(LateEnding late);
  // Ends it now, and waits for that no longer than the family's limit. False: it is put off, or
  // kept until nothing runs, because work on another device hangs. Throws std::bad_alloc; then
  // nothing was done.
  bool end_now(LateEnding late);
  // Ends what is kept if nothing runs now. Costs one atomic load if there is nothing.
  void end_if_idle() noexcept;
  // Ends what is kept and frees device memory, whatever runs. Returns how many things there were.
  std::size_t end_for_memory() const noexcept { return end_kept(true); }

  // Registers host memory in the primary context, for all contexts of the process. Fills in the
  // generation of the primary context, or 0 if there is none now.
  CUresult register_pages(void* begin, std::size_t bytes, std::uint64_t* generation) noexcept;
  // Frees multiprocessors whose contexts have ended or have become spares. Makes no driver call.
  void forget(const Groups& groups) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  void end_all() noexcept;
  // Whose work a private context in the making waits for: anybody's, when a context is being ended.
  std::vector<std::string> busy_in(const HungWork& maker) override;
  bool is_anybody_busy(const HungWork& maker) override;
  std::optional<LeaseContext> take_spare(LeaseKind kind, const Groups& groups);
  LeaseContext make_private(CallOwner owner);
  LeaseContext fresh_private(CallOwner owner);
  LeaseContext make_green(unsigned multiprocessors, std::uint64_t generation, Groups left,
                          CallOwner owner);
  LeaseContext green_over(Groups groups, std::uint64_t generation, CallOwner owner);
  // Creates the described green context, which stands on the primary of its generation. Not under
  // the lock. CUDA_ERROR_NOT_READY: not in time. Throws std::bad_alloc.
  CUresult create_in_time(LeaseContext& made, const char* owner, Clock::time_point since);
  // The lock is given up while the driver works.
  void retain_primary(Lock& lock, Clock::time_point since);
  void raise_shield(Lock& lock, Clock::time_point since, bool may_be_due);
  void keep_or_end(LeaseContext made) noexcept;
  // Throws std::bad_alloc; then it stays.
  void end_spare(const LeaseContext& spare);
  std::uint64_t free_memory() const noexcept;
  bool is_idle() noexcept;
  Ending in_primary(LateEnding late);
  std::size_t end_kept(bool for_memory) const noexcept;

  const DeviceAccess link_;
  mutable std::mutex mutex_;
  std::condition_variable used_;
  bool is_being_used_ = false;  // a thread retains the primary and raises the shield
  PrimaryContext primary_;
  std::atomic<bool> keeps_primary_{false};
  bool shut_down_ = false;
  std::chrono::milliseconds end_timeout_{2000};
  BusyTenants* busy_ = nullptr;
  std::shared_ptr<HungWork> family_;
  // Private contexts are made in it, and the primary is retained. It has no work: what hangs in
  // other families is not in their way, unless a context is being ended.
  std::shared_ptr<HungWork> private_maker_;
  std::vector<std::weak_ptr<HungWork>> private_families_;
  MemoryRelief* relief_ = nullptr;
  mutable MemoryStores stores_;
  std::shared_ptr<MultiprocessorSplit> split_;  // there from the first use on
  ShieldContext shield_;
  bool shield_is_due_ = false;  // it could not be made in time
  // Usable contexts that no lease has; the next lease of the same shape takes one. Their
  // multiprocessors are free, and green ones stand on the primary.
  std::vector<LeaseContext> spares_;
  struct KeptBack {
    std::shared_ptr<Borrowers> lease;
    std::shared_ptr<HungWork> family;
    Ending ending;
  };
  mutable std::mutex kept_back_mutex_;
  std::vector<KeptBack> kept_back_;
  std::atomic<bool> keeps_back_{false};
  struct KeptUntilIdle {
    Ending ending;
    bool frees_device_memory = false;
  };
  mutable std::vector<KeptUntilIdle> kept_until_idle_;  // under kept_back_mutex_
  mutable std::atomic<bool> keeps_until_idle_{false};
};

}  // namespace ctxbroker::detail
