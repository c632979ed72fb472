// SPDX-License-Identifier: Apache-2.0
// A lease: one generation of a tenant's right to a context on one device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "context/borrowers.hpp"
#include "context/ending.hpp"
#include "context/guard.hpp"
#include "context/hung_work.hpp"
#include "context/lease_counters.hpp"
#include "context/lease_decision.hpp"
#include "context/lease_users.hpp"
#include "context/memory_store.hpp"
#include "context/tenant_identity.hpp"
#include "context/used_device.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/lease.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"
#include "observe/counters.hpp"

namespace ctxbroker::detail {

// One object is one generation; a renewed lease is another object. Its context ends when the last
// owner lets go of the lease. Any thread may use it.
class Lease : public std::enable_shared_from_this<Lease> {
 public:
  // Throws Error: no_device, out_of_memory, driver_call, context_lost, lease_unavailable.
  // `device` must outlive the lease and be in use, with `primary` as the generation of its primary
  // context. `left` is the partition of the lost lease before.
  Lease(UsedDevice& device, std::uint64_t primary, std::shared_ptr<const TenantIdentity> tenant,
        const LeaseChoice& asked, const LeaseDecision& decision, Groups left = {});
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  LeaseInfo info() const;
  LeaseKind kind() const noexcept { return context_.granted.kind; }
  int device_ordinal() const noexcept { return device_.ordinal(); }
  // The choice that the lease was made for, with the multiprocessors that were asked for.
  const LeaseChoice& choice() const noexcept { return choice_; }
  // The multiprocessors that its work may run on: those of its partition, or of the whole device.
  unsigned int multiprocessors() const noexcept { return context_.granted.multiprocessors; }
  std::uint64_t generation() const noexcept { return target_.generation; }
  std::uint64_t primary_generation() const noexcept { return primary_generation_; }
  bool has_context(CUcontext context) const noexcept {  // its own, or a sibling of it
    return users_.has_context(context);
  }
  bool has_green(CUgreenCtx green) const noexcept {  // null: no lease has it
    return green != nullptr && (context_.green == green || users_.has_sibling(green));
  }
  // The first context: the one by which the tenant knows the lease. Null for `green`: not green.
  CUcontext context() const noexcept { return context_.context; }
  CUgreenCtx green() const noexcept { return context_.green; }

  const Driver& driver() const noexcept { return device_.driver(); }
  const DriverTable& table() const noexcept { return device_.driver().table; }
  const DeviceLimits& limits() const noexcept {
    return driver().limits[static_cast<std::size_t>(device_ordinal())];
  }
  const UsedDevice& device() const noexcept { return device_; }
  const TenantIdentity& tenant() const noexcept { return *tenant_; }
  CallOwner owner() const noexcept { return {device_.ordinal(), tenant_->name}; }
  const GuardTarget& target() const noexcept { return target_; }

  // Returns whether both leases can use the same device memory.
  bool shares_memory_with(const Lease& other) const noexcept;

  // Returns whether the lease takes no new work any more. Asks the driver only when no shield
  // protects the primary context.
  bool lost() const noexcept {
    return phase_.load(std::memory_order_acquire) != Phase::ready || fault_.happened() ||
           primary_lost();
  }
  LeaseState state() const noexcept;

  // Takes note of the status that a driver call on this lease returned, and returns it. A fault
  // ends every lease of the process. A destroyed context ends this lease. So does a handle that the
  // driver does not know, because the broker passes only its own handles: the context has ended
  // unnoticed.
  CUresult report_status(CUresult status) noexcept;

  // Says that `what` in it ("stream") could not be ended, unless the lease is lost or the driver is
  // at its exit.
  void report_failed_end(const char* what, CUresult status) noexcept;

  // Returns the Error for a guard that failed with `status`. Its text says that `doing` failed.
  Error entry_error(CUresult status, const std::string& doing) const;

  // Throws that Error unless `status`, of a guard of the lease, is CUDA_SUCCESS.
  void check_entered(CUresult status) {
    if (report_status(status) == CUDA_SUCCESS) return;
    throw entry_error(status, "the lease's context cannot be entered");
  }

  // Ends the context, or puts that off while work hangs. Call it after the users are closed for
  // good; otherwise the destructor does it.
  void end() noexcept;
  // Returns whether nobody can destroy its primary context past the gate. A private lease has none.
  bool is_shielded() const noexcept {
    return kind() == LeaseKind::private_own || device_.primary_is_shielded(primary_generation_);
  }
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }  // end was called

  // Returns whether work in its context can be waited for: the context still exists, and nothing in
  // it is known to hang.
  bool can_wait() const noexcept { return !is_hung() && end_target(Home::context).has_value(); }
  // Waits for all work in its contexts. Returns false when that takes longer than the limit of its
  // family, or when work of the family hangs.
  bool synchronize() noexcept;
  // Waits for the default streams of its contexts. Returns CUDA_ERROR_TIMEOUT when one takes longer
  // than `limit`. Do not call it for a shared lease, because all tenants share that context.
  CUresult wait_for_default_streams(std::chrono::milliseconds limit) noexcept;

  // Takes the partition from a lost lease, for the next one of its tenant. It has none afterwards,
  // so work that is still in flight can meet that of the same tenant only.
  Groups take_partition() { return has_partition_.exchange(false) ? context_.groups : Groups{}; }

  // Gives the generation up although its context still exists. What it holds can still be given
  // back.
  void give_up(const std::string& reason) noexcept;
  // Marks the lease as hung, because its work did not end in its time. It takes no new work, and
  // its tenant gets no other lease on the device. What would wait for the work is put off until the
  // work ends. `stream` has the work; null means a default stream of its contexts.
  void hang(CUstream stream) noexcept;
  // Records that its work in `stream` waits for another lease's hung work. The next use makes
  // another lease. What is in this one is put off in the same way.
  void hang_behind(CUstream stream) noexcept;
  // Leaves everything in the lease until the process ends, because a thread that is inside does not
  // leave.
  void leave_for_good() noexcept;

  // Ends the context of a private lease that was given up before its last owner goes, once nobody
  // is inside it and its work is done. Then nobody gets in any more, and `is_free` is asked last:
  // true when nothing is left that could use the context's handle or anything made in it. False: it
  // stands as before.
  template <typename IsFree>
  bool end_early(IsFree&& is_free) noexcept {
    if (!close_to_all()) return false;
    if (is_free()) {
      end_closed();
      return true;
    }
    reopen();
    return false;
  }
  // Returns whether end_early has ended its context.
  bool ended_early() const noexcept { return ended_early_.load(std::memory_order_acquire); }

  // Returns the store that the tenant's device memory comes from. The first call makes it. Null:
  // the memory comes from the driver, as in every private lease, where a free waits for no
  // neighbour.
  std::shared_ptr<MemoryStore> memory_store() noexcept;
  // The same for its pinned memory.
  std::shared_ptr<MemoryStore> pinned_store() noexcept;
  // Returns the bytes of device memory that its store keeps and that the tenant does not use.
  std::uint64_t unused_store_bytes() noexcept;

  // Calls use(context) for each of its contexts, and none of them ends meanwhile. Returns false,
  // without a call, if the lease is lost or over.
  template <typename Use>
  bool while_contexts_stay(Use&& use) noexcept {
    const std::lock_guard lock(store_mutex_);
    if (is_over() || lost()) return false;
    users_.for_each_other(nullptr, std::forward<Use>(use));
    return true;
  }

  // Opens the stores of the lease's device to another device. Call it after a call that enables
  // peer access from there, with the driver's answer `enabled`: the driver's peer access does not
  // reach memory of stores. Returns the answer to the whole call.
  CUresult open_stores(CUdevice other, CUresult enabled) const noexcept;

  // Returns the context whose memory it uses, for copies between contexts.
  CUcontext memory_context() const noexcept;

  // Returns whether its work hangs or waits for another lease's hung work.
  bool is_hung() const noexcept;
  // The family of contexts that share their memory. It ends what the lease holds.
  const std::shared_ptr<HungWork>& family() const noexcept { return family_; }
  // Returns whether freeing its memory would wait for hung work, here or on another device.
  bool holds_up_memory() const noexcept {
    return family_->any() ||
           tenant_->hung.on_other_device(device_ordinal(), family_.get()) != nullptr;
  }

  // Returns the context in which a resource with this home can be given back, or nothing when the
  // resource is gone already.
  std::optional<GuardTarget> end_target(Home home) const noexcept;

  // Ends something that lives in it. The call's status; no value when it was put off; `gone`,
  // without a call, when it has ended with its context. This is how everything in a lease ends.
  std::optional<CUresult> give_back(Ending ending) noexcept;
  // Makes the ending's call where the thing lives, on a family's own thread.
  CUresult perform(const Ending& ending) noexcept;
  static constexpr CUresult gone = CUDA_ERROR_DEINITIALIZED;  // nothing that anybody is told of
  // Unloads a module later: see UsedDevice::end_when_idle. Not for a private lease. `after` is
  // called when it is unloaded. Throws std::bad_alloc; then it is not kept.
  void unload_when_idle(CUmodule module, std::function<void(CUresult)> after);
  // Unloads a module, as MakeRequest::undo: the lease's context does not end meanwhile.
  void unload_left_behind(CUmodule module) noexcept;

  // Returns whether work in a default stream of its own contexts has not ended. Asks the driver,
  // and does not wait. False for a shared lease, whose default stream is everybody's, and for a
  // green one that a thread is inside. Throws std::bad_alloc.
  bool has_work_in_default_streams();
  // The same, also where the default stream is everybody's, and where a thread is inside.
  bool is_default_stream_busy();

  // The number of threads that have its context current without a guard. They hold the counter, not
  // the lease. As long as there is such a thread, the context is not ended.
  const std::shared_ptr<Borrowers>& borrowers() const noexcept { return borrowers_; }

  LeaseCounters& counters() const noexcept { return counters_; }
  WorkCounters& work() const noexcept { return work_; }
  // One for each of its contexts. Throws std::bad_alloc.
  std::vector<LeaseContext> contexts() const;
  LeaseUsers& users() const noexcept { return users_; }

 private:
  enum class Phase : std::uint8_t { ready, given_up, dead, behind, hung, left };

  template <typename Wait>
  CUresult in_each_context(Wait&& wait) noexcept;
  bool close_to_all() noexcept;
  void reopen() noexcept;
  void end_closed() noexcept;
  // Marks a generation that is not over; true for the call that did it.
  bool end_generation(Phase how) noexcept;
  bool primary_lost() const noexcept {
    return kind() != LeaseKind::private_own && !device_.primary_is_current(primary_generation_);
  }
  // Returns a function that ends all contexts and gives the partition back. It borrows nothing of
  // the lease.
  std::function<CUresult()> ending_of_contexts(bool again, Groups partition);
  void end_contexts(bool again) noexcept;
  // Ends the contexts as soon as no thread outside of guards has one of them current.
  void end_contexts_when_left(bool again) noexcept;
  void put_off_until_done(CUstream stream) noexcept;
  // See Ending::is_behind_device.
  bool ends_behind_device() const noexcept { return kind() == LeaseKind::private_own; }
  template <typename MakePool>
  std::shared_ptr<MemoryStore> find_store(std::shared_ptr<MemoryStore>& store,
                                          MakePool&& make_pool) noexcept;
  static CUresult make_sibling(void* self, CUgreenCtx* green, CUcontext* context,
                               std::chrono::steady_clock::time_point since);
  static void report_full(void* self);
  std::string why_full() const;

  UsedDevice& device_;
  const ProcessFault& fault_;
  std::shared_ptr<const TenantIdentity> tenant_;
  LeaseChoice asked_, choice_;
  std::string reason_;
  LeaseContext context_;
  std::atomic<bool> has_partition_;   // and not the next lease
  std::uint64_t primary_generation_;  // the generation of the primary that it stands on
  std::atomic<Phase> phase_{Phase::ready};
  std::atomic<bool> ended_early_{false};
  mutable LeaseCounters counters_;
  mutable WorkCounters work_;
  mutable LeaseUsers users_;
  const GuardTarget target_;
  std::atomic<bool> over_{false};
  std::shared_ptr<Borrowers> borrowers_ = std::make_shared<Borrowers>(0);
  const std::shared_ptr<HungWork> family_;
  std::mutex store_mutex_;  // protects the stores. No context ends while it is held
  std::shared_ptr<MemoryStore> store_, pinned_store_;
};

}  // namespace ctxbroker::detail
