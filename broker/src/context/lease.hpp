// A tenant's right to a context on one device: one life of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "context/device_hold.hpp"
#include "context/guard.hpp"
#include "context/holdings.hpp"
#include "context/lease_decision.hpp"
#include "context/lease_users.hpp"
#include "context/tenant_identity.hpp"
#include "context/unguarded.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/lease.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"
#include "observe/counters.hpp"

namespace ctxbroker::detail {

// Where a resource lives: what ends it.
enum class Home {
  context,  // with the context: streams
  memory,   // with memory, modules and events: in the primary when the lease is green, which
            // outlives the green context
  device,   // of no context: pools and what comes of them, physical memory
};

// One object is one generation; a renewed lease is another object. Its context ends with its last
// owner. Any thread.
class Lease : public std::enable_shared_from_this<Lease> {
 public:
  // Throws Error: no_device, out_of_memory, driver_call, context_lost, lease_unavailable.
  // `device` outlives the lease, and has been used.
  Lease(DeviceHold& device, std::shared_ptr<const TenantIdentity> tenant, const LeaseChoice& asked,
        const LeaseDecision& decision);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  LeaseInfo info() const;
  LeaseKind kind() const noexcept { return context_.granted.kind; }
  int device_ordinal() const noexcept { return device_.ordinal(); }
  // What it was made for; of a green one the multiprocessors that were asked for, not those
  // granted.
  const LeaseChoice& choice() const noexcept { return choice_; }
  // That its work may run on: its partition's, or the device's.
  unsigned int multiprocessors() const noexcept { return context_.granted.multiprocessors; }
  std::uint64_t generation() const noexcept { return target_.generation; }
  std::uint64_t primary_generation() const noexcept { return primary_generation_; }
  bool has_context(CUcontext context) const noexcept;  // its own, or a sibling of it
  CUcontext context() const noexcept { return context_.context; }

  const Driver& driver() const noexcept { return device_.driver(); }
  const DriverTable& table() const noexcept { return device_.driver().table; }
  const DeviceHold& device() const noexcept { return device_; }
  const TenantIdentity& tenant() const noexcept { return *tenant_; }
  CallOwner owner() const noexcept { return {device_.ordinal(), tenant_->name}; }
  const GuardTarget& target() const noexcept { return target_; }

  // True when memory of one is memory of the other.
  bool shares_memory_with(const Lease& other) const noexcept;

  // No new work may begin on it. Asks the driver only where no shield protects the primary.
  bool lost() const noexcept {
    return life_.load(std::memory_order_acquire) != Life::ready || fault_.happened() ||
           primary_lost();
  }
  LeaseState state() const noexcept;

  // Looks at what a driver call on this lease returned; returns it. A fault ends every lease of the
  // process, a destroyed context this one. A handle that the driver does not know, when all that
  // the call was given are the broker's own, has ended with its context while nobody looked: the
  // lease is given up.
  CUresult note(CUresult status) noexcept;

  // For a guard on it that came back with `status`: says that `doing` failed, and why.
  Error entry_error(CUresult status, const std::string& doing) const;

  // Ends its context, or leaves it to the process's end where it must not be touched. Afterwards
  // nothing of the lease touches the driver. Once its users are closed for good; the destructor
  // does it otherwise.
  void end() noexcept;
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }  // end was called

  // Waits for all that was enqueued in its contexts, as long as it takes. What the driver said;
  // CUDA_SUCCESS where there is nothing to wait for, or it must not be touched.
  CUresult synchronize() noexcept;
  // The same for what is in the default streams of its contexts, no longer than `limit` for each:
  // CUDA_ERROR_TIMEOUT. Not for a shared lease, whose context is everybody's.
  CUresult wait_for_default_streams(std::chrono::milliseconds limit) noexcept;

  // Gives the life up although its context still stands: what it holds is still given back.
  void give_up(const std::string& reason) noexcept;
  // Work on it does not end: nothing of it is touched again, and nothing given back. It stays in
  // force until the broker ends, so that its tenant gets no other.
  void bury() noexcept;
  // Its work waits for another lease's that does not end, or that may use its memory: the same, but
  // a next use makes another.
  void strand() noexcept;

  // Ends the context of a private life that was given up before its last owner goes, once nobody is
  // inside it and its work is done. Then nobody gets in any more, and `is_free` is asked last: true
  // when nothing is left that could use the context's handle or anything made in it. False: it
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
  // Its context was ended so.
  bool ended_early() const noexcept { return ended_early_.load(std::memory_order_acquire); }

  // The context whose memory it uses, for copies between contexts.
  CUcontext memory_context() const noexcept;

  // Work in it does not end, so that it must be left as it is.
  bool untouchable() const noexcept;

  // Work of the tenant on another device does not end, and may use its memory: the driver frees
  // memory of one device without a look at the others, and a write that comes later is a fault.
  bool used_from_beside() const noexcept { return tenant_->endless.beside(device_.ordinal()); }

  // What could not be given back yet never will be, and stays charged.
  bool keeps_all() const noexcept { return untouchable() || used_from_beside(); }

  // Where to be current to give back something that lives there; nothing when it is gone already,
  // or must not be touched, or is memory that is used from beside.
  std::optional<GuardTarget> end_target(Home home) const noexcept;

  // How many threads have its context current without a guard; they hold the counter, not the
  // lease. While there is one, the context is not ended.
  const std::shared_ptr<Borrowers>& borrowers() const noexcept { return borrowers_; }

  Holdings& holdings() const noexcept { return holdings_; }
  WorkCounters& work() const noexcept { return work_; }
  LeaseUsers& users() const noexcept { return users_; }

 private:
  enum class Life : std::uint8_t { ready, given_up, dead, stranded, buried };

  template <typename Wait>
  CUresult in_each_context(Wait&& wait) noexcept;
  bool close_to_all() noexcept;
  void reopen() noexcept;
  void end_closed() noexcept;
  // Marks a life that is not over; true for the call that did it.
  bool end_life(Life how) noexcept;
  bool primary_lost() const noexcept {
    return kind() != LeaseKind::private_own && !device_.primary_lives(primary_generation_);
  }
  void keep_memory() const noexcept;
  void end_siblings(bool again) noexcept;
  void report_failed_end(CUresult status) noexcept;
  static CUresult make_sibling(void* self, CUgreenCtx* green, CUcontext* context);

  DeviceHold& device_;
  const ProcessFault& fault_;
  std::shared_ptr<const TenantIdentity> tenant_;
  LeaseChoice asked_, choice_;
  std::string reason_;
  LeaseContext context_;
  std::uint64_t primary_generation_;  // the life of the primary that it stands on
  std::atomic<Life> life_{Life::ready};
  std::atomic<bool> ended_early_{false};
  mutable Holdings holdings_;
  mutable WorkCounters work_;
  mutable LeaseUsers users_;
  const GuardTarget target_;
  std::atomic<bool> over_{false};
  std::shared_ptr<Borrowers> borrowers_ = std::make_shared<Borrowers>(0);
};

}  // namespace ctxbroker::detail
