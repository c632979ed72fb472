// A tenant's right to a context on one device: one generation of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "context/device_hold.hpp"
#include "context/guard.hpp"
#include "context/holdings.hpp"
#include "context/hung_work.hpp"
#include "context/lease_decision.hpp"
#include "context/lease_users.hpp"
#include "context/tenant_identity.hpp"
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
    return phase_.load(std::memory_order_acquire) != Phase::ready || fault_.happened() ||
           primary_lost();
  }
  LeaseState state() const noexcept;

  // Looks at what a driver call on this lease returned; returns it. A fault ends every lease of the
  // process, a destroyed context this one. A handle that the driver does not know, when all that
  // the call was given are the broker's own, has ended with its context while nobody looked: the
  // lease is given up.
  CUresult report_status(CUresult status) noexcept;

  // For a guard on it that came back with `status`: says that `doing` failed, and why.
  Error entry_error(CUresult status, const std::string& doing) const;

  // Ends its context, or puts that off until work that hangs ends. Once its users are closed for
  // good; the destructor does it otherwise.
  void end() noexcept;
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }  // end was called

  // Waits for all that was enqueued in its contexts. False when that takes longer than the limit of
  // its family, or something there hangs.
  bool synchronize() noexcept;
  // Waits for what is in the default streams of its contexts, no longer than `limit` for each:
  // CUDA_ERROR_TIMEOUT. Not for a shared lease, whose context is everybody's.
  CUresult wait_for_default_streams(std::chrono::milliseconds limit) noexcept;

  // Gives the generation up although its context still stands: what it holds is still given back.
  void give_up(const std::string& reason) noexcept;
  // Its work did not end in its time: the lease is hung. It takes no new work, and its tenant gets
  // no other lease on the device. What would wait for the work is put off until it ends. `stream`
  // has the work; null: a default stream of its contexts does.
  void hang(CUstream stream) noexcept;
  // Its work in `stream` waits for another lease's that hangs. A next use makes another lease; what
  // is in this one is put off in the same way.
  void hang_behind(CUstream stream) noexcept;
  // A thread that is inside cannot be made to leave: all that is in it stays until the process
  // ends.
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
  // Its context was ended so.
  bool ended_early() const noexcept { return ended_early_.load(std::memory_order_acquire); }

  // The context whose memory it uses, for copies between contexts.
  CUcontext memory_context() const noexcept;

  // Its work hangs, or waits for another lease's that does.
  bool is_hung() const noexcept;
  // Where endings of what it has are waited for: the contexts whose memory is one.
  const std::shared_ptr<HungWork>& family() const noexcept { return family_; }
  // Memory that is freed in it now would have to wait for work that hangs, here or on another
  // device.
  bool holds_up_memory() const noexcept {
    return family_->any() || tenant_->hung.on_other_device(device_ordinal()) != nullptr;
  }

  // Where to be current to give back something that lives there; nothing when it is gone already.
  std::optional<GuardTarget> end_target(Home home) const noexcept;

  // Ends something that lives in it, by `call`, which is made where it lives. The call's status; no
  // value when it was put off; `gone`, without a call, when it has ended with its context.
  // `after` is called in each case as soon as it has ended, perhaps on another thread and much
  // later. This is how everything in a lease ends.
  struct Thing {
    Home home = Home::memory;
    const char* what = "";    // static text: "stream"
    std::uint64_t bytes = 0;  // of device memory
    bool may_wait = true;     // the driver may wait for work before it ends one
    bool quiet = false;       // the caller tells the host of it when it is put off
    std::function<CUresult()> call{};
    std::function<void(CUresult)> after{};
  };
  static constexpr CUresult gone = CUDA_ERROR_DEINITIALIZED;  // nothing that anybody is told of
  std::optional<CUresult> give_back(Thing thing) noexcept;

  // How many threads have its context current without a guard; they hold the counter, not the
  // lease. While there is one, the context is not ended.
  const std::shared_ptr<Borrowers>& borrowers() const noexcept { return borrowers_; }

  Holdings& holdings() const noexcept { return holdings_; }
  WorkCounters& work() const noexcept { return work_; }
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
  std::vector<LeaseContext> contexts() const;
  void end_contexts(bool again) noexcept;
  void put_off_until_done(CUstream stream) noexcept;
  void report_failed_end(CUresult status) noexcept;
  static CUresult make_sibling(void* self, CUgreenCtx* green, CUcontext* context);

  DeviceHold& device_;
  const ProcessFault& fault_;
  std::shared_ptr<const TenantIdentity> tenant_;
  LeaseChoice asked_, choice_;
  std::string reason_;
  LeaseContext context_;
  std::uint64_t primary_generation_;  // the generation of the primary that it stands on
  std::atomic<Phase> phase_{Phase::ready};
  std::atomic<bool> ended_early_{false};
  mutable Holdings holdings_;
  mutable WorkCounters work_;
  mutable LeaseUsers users_;
  const GuardTarget target_;
  std::atomic<bool> over_{false};
  std::shared_ptr<Borrowers> borrowers_ = std::make_shared<Borrowers>(0);
  const std::shared_ptr<HungWork> family_;
};

}  // namespace ctxbroker::detail
