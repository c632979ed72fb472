// SPDX-License-Identifier: Apache-2.0
// The gate's view of one tenant.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "context/guard.hpp"
#include "context/lease.hpp"
#include "context/ownership.hpp"
#include "context/tenant_identity.hpp"
#include "ctxbroker/lease.hpp"
#include "gate/pending_calls.hpp"
#include "ledger/holding.hpp"
#include "ledger/limits.hpp"

namespace ctxbroker::detail {

struct TranslatedLease {
  GuardTarget target;
  LeaseKind kind = LeaseKind::shared;
  std::shared_ptr<Borrowers> borrowers;
  // The context whose memory it uses, and the generation of that.
  CUcontext memory_context = nullptr;
  std::uint64_t memory_generation = 0;
  bool is_shielded = false;  // see Lease::is_shielded
};

// One generation of a lease, for what outlives it.
struct LeaseGeneration {
  std::uint64_t generation = 0;  // 0: not of the tenant's leases
  int device = 0;
  LeaseKind kind = LeaseKind::shared;
  std::uint64_t primary_generation = 0;  // the generation of the primary that it stands on
};

// Gives the gate the leases of an open tenant, and their devices. The room above the gate
// implements it. Any thread.
class LeaseSource {
 public:
  explicit LeaseSource(std::size_t devices) noexcept : device_count_(static_cast<int>(devices)) {}
  virtual ~LeaseSource() = default;
  LeaseSource(const LeaseSource&) = delete;
  LeaseSource& operator=(const LeaseSource&) = delete;

  // The tenant's lease on a device, made when there is none.
  virtual CUresult lease(int device, TranslatedLease* lease) noexcept = 0;
  // Returns the tenant's current lease on a device, or null.
  virtual std::shared_ptr<Lease> current_lease(int device) noexcept = 0;
  // Finds a lease that matches, among the current ones and then the earlier ones that still stand,
  // the newest first. Null: none does.
  virtual std::shared_ptr<Lease> find(
      const std::function<bool(const Lease&)>& matches) noexcept = 0;
  virtual UsedDevice& device(int ordinal) noexcept = 0;
  int device_count() const noexcept { return device_count_; }

 private:
  const int device_count_;
};

// The tenant's own view of a device's primary context, which it never has.
struct PrimaryView {
  int retains = 0;
  std::optional<unsigned> flags;             // that the tenant has set
  std::optional<CUfunc_cache> cache_config;  // that the tenant has set and that is not followed
};

// The tenant's own pools on a device, in place of the pools that belong to everybody.
struct OwnPools {
  CUmemoryPool standard = nullptr;  // in place of the default one; null: not asked for yet
  CUmemoryPool current = nullptr;   // that the tenant has set; null: the standard one
};

// Totals of the waits for the device in which the tenant's calls kept threads of the host or of its
// own.
struct WaitTotals {
  std::uint64_t count = 0, nanoseconds = 0, longest = 0;
};

// A tenant as the gate knows it: its code, the things that the code holds, and the leases that it
// works in.
//
// The object is never destroyed, because code and threads of a plug-in outlive their tenant. If a
// library stays in the process, its code and things stay with its GatedTenant, which is closed. The
// next tenant that adopts the library opens it again. A GatedTenant that never had code is given to
// the next tenant as soon as nothing is left of its own. Any thread.
class GatedTenant {
 public:
  explicit GatedTenant(std::shared_ptr<const TenantIdentity> identity);

  // The number by which its things are known. It stays that of the first tenant.
  TenantId id() const noexcept { return id_; }
  // The holder of the things that its code makes.
  Holder holder() const noexcept { return {.tenant = id_}; }
  // The identity of the tenant that has it open, or had it last.
  const TenantIdentity& identity() const noexcept {
    return *identity_.load(std::memory_order_acquire);
  }
  std::shared_ptr<const TenantIdentity> shared_identity() const noexcept;

  // While it is open, it is this tenant's and its leases come from `source`. False: another tenant
  // has it open. Throws std::bad_alloc.
  bool open(LeaseSource& source, const std::shared_ptr<const TenantIdentity>& identity);
  // Names the contexts that end with the tenant, before it closes. Its code may keep their handles,
  // and the next tenant may get one of the contexts. Throws std::bad_alloc.
  void leave_contexts(const std::vector<CUcontext>& contexts);
  // Returns whether it is closed and a handle is of a context that it has left.
  bool has_left(CUcontext context) noexcept;
  // Waits for calls that ask the source, and closes what was opened beside it.
  void close() noexcept;
  bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  // Code of the tenant has come into the process. Its threads name this from then on.
  void mark_code() noexcept { had_code_.store(true, std::memory_order_release); }
  // A library of the tenant was in the process before anybody knew whose it is. What nobody holds
  // in the ledger may be what it made then.
  void mark_was_here() noexcept { was_here_.store(true, std::memory_order_release); }
  bool was_here() const noexcept { return was_here_.load(std::memory_order_acquire); }
  // The tenant has ended, and no thread is inside any more.
  void mark_over() noexcept { over_.store(true, std::memory_order_release); }
  // Takes it for the next tenant. False: it is open, or something names it still. Throws
  // std::bad_alloc.
  bool take_over();
  // A tenant has several open where its code loads what others left: guards of the tenant stand for
  // the main one, and calls of the others' code are the main one's. Opens `left` beside this one,
  // if it is closed. Throws std::bad_alloc.
  void open_beside(GatedTenant& left);
  // From now on `main`, which was opened beside this one, is the main one. Throws std::bad_alloc.
  void give_way_to(GatedTenant& main);
  // This one, and what was opened beside it. Throws std::bad_alloc.
  std::vector<GatedTenant*> all_of_tenant();
  // The number of times that it was opened.
  std::uint64_t openings() const noexcept { return openings_.load(std::memory_order_acquire); }
  // The main one of its tenant; closed: itself.
  GatedTenant& main() noexcept { return *main_.load(std::memory_order_acquire); }
  // Both are one tenant's.
  bool stands_with(const GatedTenant& other) const noexcept {
    return main_.load(std::memory_order_acquire) == other.main_.load(std::memory_order_acquire);
  }

  // The functions from here to `end` ask the source. If the tenant is closed, they find nothing.

  // The tenant's lease on a device, made when there is none. CUDA_ERROR_INVALID_CONTEXT: closed.
  CUresult lease(int device, TranslatedLease* lease) noexcept;
  // Returns whether the tenant has a lease there that is in force.
  bool has_lease(int device) noexcept;
  bool has_device(int device) const noexcept {
    return device >= 0 && device < device_count_.load(std::memory_order_acquire);
  }
  // Finds the device whose primary context this is, or that this context of the tenant's leases is
  // on. Takes a device into use whose primary context somebody else has made. Returns -1 if there
  // is no such device.
  int find_device(CUcontext context) noexcept;
  // Finds the device of a context for which find_device returns -1. The handle can be the primary
  // context of a device that the broker has not used yet, because the runtime library knows handles
  // before there is a context. Then the device is taken into use. Or the handle can be that of an
  // earlier generation of the tenant's leases, which has ended and which the driver must not see.
  // Returns -1 if there is no such device.
  int find_unused_device(CUcontext context) noexcept;
  // Device memory is short where this context is: true when something was given up.
  bool relieve(CUcontext context) noexcept;
  // Returns whether a context is of the tenant's leases, and of no other tenant's.
  bool holds(CUcontext context) noexcept;
  // Finds the lease that a context of the tenant's leases is of. A primary context stands for the
  // tenant's lease on its device. Null: the context is another, or there is no lease.
  std::shared_ptr<Lease> lease_meant(CUcontext context) noexcept;
  std::shared_ptr<Lease> lease_with_green(CUgreenCtx green) noexcept;
  // Returns the family of a device's primary context. Null: the broker does not use the device.
  std::shared_ptr<HungWork> primary_family(int device) noexcept;

  // The generation that the calling thread's context is of, remembered for later questions; 0:
  // none.
  std::uint64_t generation_of(CUcontext current) noexcept;
  // Returns the context that has to be current to end things that were made in that generation:
  // things of the context itself (streams), or of the primary's memory, which outlives a green
  // context. Returns nothing if they ended with the generation.
  std::optional<GuardTarget> end_target(std::uint64_t generation, Home home) noexcept;
  // Ends something that was made in a generation; as Lease::give_back. `gone` when the tenant is
  // closed.
  std::optional<CUresult> end(std::uint64_t generation, Ending ending) noexcept;
  // Returns whether things that were made in that generation and live there ended with it, or will.
  bool ends_with_generation(std::uint64_t generation, Home home) noexcept;
  // Something that its code made in that generation is not ended yet.
  bool holds_anything_of(std::uint64_t generation) const noexcept;
  // Anything was made in a lease on that device.
  bool has_worked_on(int device) noexcept;

  // The tenant was told a handle that stands for the device's primary context, or has made it
  // current. From then on the primary is active for the tenant. While the tenant retains it, it is
  // active anyway, and inactive again after the last release. Takes no lock.
  void note_told(int device) noexcept {
    const std::uint64_t bit = bit_of(device);
    const std::uint64_t known =
        told_.load(std::memory_order_relaxed) | retained_.load(std::memory_order_relaxed);
    if ((known & bit) == 0) told_.fetch_or(bit, std::memory_order_relaxed);
  }
  bool was_told(int device) const noexcept {
    return (told_.load(std::memory_order_relaxed) & bit_of(device)) != 0;
  }
  void forget_told(int device) noexcept {
    told_.fetch_and(~bit_of(device), std::memory_order_relaxed);
    ownership_changed();  // so that the next call that makes the lease current tells anew
  }
  // Returns how often the tenant retains primary contexts, on all devices together.
  int primary_retains() noexcept;
  // `use` may change the view; it returns a CUresult.
  template <typename Use>
  CUresult with_primary(int device, Use&& use) {
    const std::lock_guard lock(mutex_);
    PrimaryView& view = primaries_[device];
    const CUresult status = use(view);
    if (view.retains > 0) {
      retained_.fetch_or(bit_of(device), std::memory_order_relaxed);
    } else if ((retained_.fetch_and(~bit_of(device), std::memory_order_relaxed) & bit_of(device)) !=
               0) {
      ownership_changed();
    }
    return status;
  }

  // `use` may change what it is given, and call the driver; it returns a CUresult.
  template <typename Use>
  CUresult with_pools(int device, Use&& use) {
    const std::lock_guard lock(pools_mutex_);
    return use(pools_[device]);
  }
  // While none ends that is in the ledger for the tenant.
  template <typename Use>
  void while_pools_stay(Use&& use) {
    const std::lock_guard lock(pools_mutex_);
    use();
  }
  // They have been ended.
  void forget_pools() noexcept;

  // It has the driver's private tables, which name primary contexts.
  void mark_private_tables() noexcept { private_tables_.store(true, std::memory_order_relaxed); }
  bool has_private_tables() const noexcept {
    return private_tables_.load(std::memory_order_relaxed);
  }

  // Notes that its code has made a green context. It may then work outside its lease's contexts.
  void mark_own_green() noexcept { has_own_green_.store(true, std::memory_order_relaxed); }
  bool has_own_green() const noexcept { return has_own_green_.load(std::memory_order_relaxed); }

  // Notes that one of its pools keeps memory that it does not use.
  void mark_kept_unused() noexcept { keeps_unused_.store(true, std::memory_order_relaxed); }
  // Returns whether its pools may keep more unused memory than its budget leaves.
  bool may_keep_too_much() noexcept {
    return keeps_unused_.load(std::memory_order_relaxed) && budget().limit() != 0;
  }

  // Limits on what the tenant's own code may hold.
  Limits& limits() noexcept { return limits_; }
  Budget& budget() noexcept { return limits_.of(Limit::device_memory); }

  // Functions of its code that the driver has still to call.
  PendingCalls& pending_calls() noexcept { return pending_calls_; }

  // A guarded call of this tenant. `rule`: its place in the table of rules.
  void count_hit(std::size_t rule) noexcept { hits_[rule].fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t hits(std::size_t rule) const noexcept {
    return hits_[rule].load(std::memory_order_relaxed);
  }

  // A call of this tenant that waits, when it has returned. Takes no lock.
  void count_wait(std::uint64_t nanoseconds) noexcept;
  WaitTotals waits() const noexcept;

  // Records a breach, unless the tenant is closed.
  void strike(const char* function, const char* what) noexcept;
  // Writes a record about the tenant, which counts as no strike.
  void log(Severity severity, std::string_view function, const char* what,
           const char* topic = "gate") noexcept;
  // Once per `function`.
  void log_once(std::string_view function, const char* what, Severity severity = Severity::info,
                const char* topic = "gate") noexcept;

 private:
  template <typename Answer, typename Question>
  Answer ask(Answer closed, Question&& question) noexcept {
    const std::shared_lock lock(source_lock_);
    return source_ != nullptr ? question(*source_) : closed;
  }
  LeaseGeneration find_generation(std::uint64_t generation) noexcept;
  static std::uint64_t bit_of(int device) noexcept { return std::uint64_t{1} << (device & 63); }

  const TenantId id_;
  // Under its locks. False: it is open already.
  bool open_as(LeaseSource& source, const std::shared_ptr<const TenantIdentity>& identity,
               GatedTenant& main);

  std::vector<std::shared_ptr<const TenantIdentity>> identities_;  // all: they are read unlocked
  std::atomic<const TenantIdentity*> identity_;
  std::atomic<GatedTenant*> main_;
  std::atomic<std::uint64_t> openings_{0};
  mutable std::shared_mutex source_lock_;
  LeaseSource* source_ = nullptr;
  std::atomic<int> device_count_{0};  // of the source; 0: closed
  std::atomic<bool> open_{false}, private_tables_{false}, keeps_unused_{false},
      has_own_green_{false};
  std::atomic<bool> had_code_{false}, over_{false}, was_here_{false};
  std::atomic<std::uint64_t> told_{0}, retained_{0};  // a bit for each device: see note_told
  std::mutex mutex_;                                  // of what follows
  std::vector<GatedTenant*> beside_;
  std::vector<CUcontext> left_contexts_;
  std::map<int, PrimaryView> primaries_;
  std::map<std::uint64_t, LeaseGeneration>
      generations_;         // that something was made in, by generation
  std::mutex pools_mutex_;  // before mutex_
  std::map<int, OwnPools> pools_;
  Limits limits_;
  PendingCalls pending_calls_;
  // Counters of the tenant that has it open, or had it last.
  using Counter = std::atomic<std::uint64_t>;
  const std::unique_ptr<Counter[]> hits_;  // one for each rule
  Counter waits_{0}, nanoseconds_waited_{0}, longest_wait_{0};
};

// The one of this tenant, to be opened. Throws std::bad_alloc.
GatedTenant& gated_tenant(const std::shared_ptr<const TenantIdentity>& identity);
// The one with that number, or else the one that the tenant of that number has open. Null: it never
// had one. Looks through all of them.
[[gnu::cold]] GatedTenant* gated_tenant_of(TenantId id) noexcept;

// True once any tenant was made, or claims wait for one: until then nobody but the host is calling.
inline constinit std::atomic<bool> gated_tenants{false};
inline bool any_gated_tenant() noexcept {
  return gated_tenants.load(std::memory_order_acquire);
}
// The open tenant in whose leases this context is, and not `but`; null: none.
GatedTenant* holder_of_context(CUcontext context, const GatedTenant* but = nullptr) noexcept;
GatedTenant* holder_of_green(CUgreenCtx green) noexcept;
// An open tenant that has a lease on the device; null: none has.
GatedTenant* tenant_on(int device) noexcept;

// For a tenant, whose lease `from` is current. Answers as the driver: ALREADY_ENABLED to a tenant
// that has the access. With the rules for peers.
CUresult enable_peer_access(GatedTenant& tenant, const TranslatedLease& from,
                            const TranslatedLease& peer, unsigned flags) noexcept;

}  // namespace ctxbroker::detail
