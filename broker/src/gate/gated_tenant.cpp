// SPDX-License-Identifier: Apache-2.0
#include "gate/gated_tenant.hpp"

#include <algorithm>
#include <new>

#include "gate/rule.hpp"
#include "ledger/ledger.hpp"

namespace ctxbroker::detail {
namespace {

// All gated tenants of the process, which has one gate.
struct All {
  std::shared_mutex lock;
  std::vector<std::unique_ptr<GatedTenant>> tenants;
};
All& all() {
  static auto* const one = new All;
  return *one;
}

std::shared_ptr<Lease> lease_with(LeaseSource& source, CUcontext context) noexcept {
  return source.find(
      [context](const Lease& lease) { return !lease.ended_early() && lease.has_context(context); });
}

std::shared_ptr<Lease> lease_of(LeaseSource& source, std::uint64_t generation) noexcept {
  return source.find([generation](const Lease& lease) { return lease.generation() == generation; });
}

// Finds the device whose primary context this is, or returns -1. A device that is not in use yet is
// taken into use first, if is_to_be_used(device).
template <typename IsToBeUsed>
int device_with_primary(LeaseSource& source, CUcontext context,
                        IsToBeUsed&& is_to_be_used) noexcept {
  for (int device = 0; device < source.device_count(); ++device) {
    UsedDevice& used = source.device(device);
    try {
      if (!used.in_use() && is_to_be_used(used)) used.use();
    } catch (...) {  // NOLINT(bugprone-empty-catch): not in use, then
    }
    if (used.in_use() && used.primary() == context) return device;
  }
  return -1;
}

// See GatedTenant::find_device.
int device_of(LeaseSource& source, CUcontext context) noexcept {
  if (const auto lease = lease_with(source, context)) return lease->device_ordinal();
  // The runtime library may have made it a moment ago, by ways that nobody sees.
  return device_with_primary(source, context,
                             [](const UsedDevice& used) { return used.primary_is_active(); });
}

// As GatedTenant::end_target, for a generation that has ended.
std::optional<GuardTarget> target_left_by(UsedDevice& used, const LeaseGeneration& made_in,
                                          Home home) noexcept {
  // A private context ended with all that was made in it.
  if (made_in.kind == LeaseKind::private_own && home != Home::device) return std::nullopt;
  if (made_in.kind == LeaseKind::green && home == Home::context) return std::nullopt;
  if (used.fault().happened() || used.primary_generation() != made_in.primary_generation) {
    return std::nullopt;
  }
  return GuardTarget{&used.driver().table, used.primary(), made_in.primary_generation, nullptr};
}

}  // namespace

GatedTenant::GatedTenant(std::shared_ptr<const TenantIdentity> identity)
    : id_(identity->id),
      identity_(identity.get()),
      main_(this),
      hits_(std::make_unique<Counter[]>(rule_count())) {
  identities_.push_back(std::move(identity));
}

bool GatedTenant::open_as(LeaseSource& source,
                          const std::shared_ptr<const TenantIdentity>& identity,
                          GatedTenant& main) {
  if (source_ != nullptr) return false;
  if (identity != identities_.back()) {
    identities_.push_back(identity);
    identity_.store(identity.get(), std::memory_order_release);
    for (std::size_t rule = 0; rule < rule_count(); ++rule) hits_[rule] = 0;
    waits_ = nanoseconds_waited_ = longest_wait_ = 0;
  }
  source_ = &source;
  device_count_.store(source.device_count(), std::memory_order_release);
  left_contexts_.clear();
  pending_calls_.admit();
  main_.store(&main, std::memory_order_release);
  open_.store(true, std::memory_order_release);
  openings_.fetch_add(1, std::memory_order_release);  // last: who sees it acts on all of the above
  return true;
}

bool GatedTenant::take_over() {
  if (!over_ || had_code_ || has_private_tables() || pending_calls_.any()) return false;
  for (const LimitRow& row : limit_rows()) {
    if (limits_.of(row.limit).held() != 0) return false;  // something of it is put off
  }
  if (!ledger().held_by(holder()).empty()) return false;
  over_ = false;
  keeps_unused_ = false;
  was_here_ = false;
  const std::lock_guard lock(mutex_);
  generations_.clear();
  return true;
}

bool GatedTenant::open(LeaseSource& source, const std::shared_ptr<const TenantIdentity>& identity) {
  const std::unique_lock lock(source_lock_);
  const std::lock_guard views(mutex_);
  return open_as(source, identity, *this);
}

void GatedTenant::open_beside(GatedTenant& left) {
  if (&left == this || left.is_open()) return;
  const std::scoped_lock lock(source_lock_, left.source_lock_);
  if (source_ == nullptr) return;
  const std::scoped_lock views(mutex_, left.mutex_);
  beside_.reserve(beside_.size() + 1);
  if (!left.open_as(*source_, identities_.back(), *this)) return;
  beside_.push_back(&left);
  if (left.has_private_tables()) mark_private_tables();
}

void GatedTenant::give_way_to(GatedTenant& main) {
  const std::scoped_lock lock(mutex_, main.mutex_);
  std::vector<GatedTenant*> beside{this};
  for (GatedTenant* const one : beside_) {
    if (one != &main) beside.push_back(one);
  }
  beside_.clear();
  main.beside_ = std::move(beside);
  main.main_.store(&main, std::memory_order_release);
  for (GatedTenant* const one : main.beside_) one->main_.store(&main, std::memory_order_release);
}

std::shared_ptr<const TenantIdentity> GatedTenant::shared_identity() const noexcept {
  const std::shared_lock lock(source_lock_);
  return identities_.back();
}

std::vector<GatedTenant*> GatedTenant::all_of_tenant() {
  const std::lock_guard lock(mutex_);
  std::vector<GatedTenant*> all{this};
  all.insert(all.end(), beside_.begin(), beside_.end());
  return all;
}

void GatedTenant::leave_contexts(const std::vector<CUcontext>& contexts) {
  const std::lock_guard lock(mutex_);
  left_contexts_.insert(left_contexts_.end(), contexts.begin(), contexts.end());
}

bool GatedTenant::has_left(CUcontext context) noexcept {
  if (is_open()) return false;
  const std::lock_guard lock(mutex_);
  return std::find(left_contexts_.begin(), left_contexts_.end(), context) != left_contexts_.end();
}

void GatedTenant::close() noexcept {
  std::vector<GatedTenant*> beside;
  {
    const std::unique_lock lock(source_lock_);
    source_ = nullptr;
    device_count_.store(0, std::memory_order_release);
    main_.store(this, std::memory_order_release);
    open_.store(false, std::memory_order_release);
    ownership_changed();  // after what it is found out from
    const std::lock_guard views(mutex_);
    primaries_.clear();
    told_ = retained_ = 0;
    beside.swap(beside_);
  }
  for (GatedTenant* const one : beside) one->close();
}

CUresult GatedTenant::lease(int device, TranslatedLease* lease) noexcept {
  return ask(CUDA_ERROR_INVALID_CONTEXT,
             [&](LeaseSource& source) { return source.lease(device, lease); });
}

bool GatedTenant::has_lease(int device) noexcept {
  return ask(false, [&](LeaseSource& source) {
    const auto lease = source.current_lease(device);
    return lease != nullptr && !lease->lost();
  });
}

int GatedTenant::find_device(CUcontext context) noexcept {
  return ask(-1, [&](LeaseSource& source) { return device_of(source, context); });
}

int GatedTenant::find_unused_device(CUcontext context) noexcept {
  return ask(-1, [&](LeaseSource& source) {
    const int device = device_with_primary(source, context, [](const UsedDevice&) { return true; });
    if (device >= 0) return device;
    const auto ended = source.find([context](const Lease& lease) {
      return lease.ended_early() && lease.has_context(context);
    });
    return ended != nullptr ? ended->device_ordinal() : -1;
  });
}

// The broker's own work, although a tenant's call asks for it.
bool GatedTenant::relieve(CUcontext context) noexcept {
  return ask(false, [&](LeaseSource& source) {
    const HostFrame frame;
    const int device = device_of(source, context);
    if (device < 0) return false;
    const auto lease = lease_with(source, context);
    const UsedDevice& used = source.device(device);
    const auto& family = lease != nullptr ? lease->family() : used.family();
    return family->wait_for_put_off() || used.relieve();
  });
}

bool GatedTenant::holds(CUcontext context) noexcept {
  return ask(false, [&](LeaseSource& source) {
    const auto lease = lease_with(source, context);
    return lease != nullptr && lease->kind() != LeaseKind::shared;  // which is everybody's
  });
}

std::shared_ptr<Lease> GatedTenant::lease_meant(CUcontext context) noexcept {
  if (context == nullptr) return nullptr;
  return ask(std::shared_ptr<Lease>(), [&](LeaseSource& source) {
    if (auto lease = lease_with(source, context)) return lease;
    const int device =
        device_with_primary(source, context, [](const UsedDevice&) { return false; });
    return device >= 0 ? source.current_lease(device) : nullptr;
  });
}

std::shared_ptr<Lease> GatedTenant::lease_with_green(CUgreenCtx green) noexcept {
  return ask(std::shared_ptr<Lease>(), [&](LeaseSource& source) {
    return source.find(
        [green](const Lease& lease) { return !lease.ended_early() && lease.has_green(green); });
  });
}

std::shared_ptr<HungWork> GatedTenant::primary_family(int device) noexcept {
  if (!has_device(device)) return nullptr;
  return ask(std::shared_ptr<HungWork>(), [&](LeaseSource& source) {
    const UsedDevice& used = source.device(device);
    return used.in_use() ? used.family() : nullptr;
  });
}

std::uint64_t GatedTenant::generation_of(CUcontext current) noexcept {
  if (current == nullptr) return 0;
  // Within a guard the frame knows; its generation is in the map after the first time.
  if (const Frame* frame = pushed_frame(); frame != nullptr && frame->target.context == current) {
    const std::lock_guard lock(mutex_);
    if (generations_.count(frame->target.generation) != 0) return frame->target.generation;
  }
  const std::shared_lock lock(source_lock_);
  const auto lease = source_ != nullptr ? lease_with(*source_, current) : nullptr;
  if (lease == nullptr) return 0;
  const std::uint64_t found = lease->generation();
  const std::lock_guard views(mutex_);
  try {
    generations_.emplace(found, LeaseGeneration{found, lease->device_ordinal(), lease->kind(),
                                                lease->primary_generation()});
  } catch (...) {
    return 0;  // what is made cannot be given back before its context ends
  }
  return found;
}

LeaseGeneration GatedTenant::find_generation(std::uint64_t generation) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = generations_.find(generation);
  return found == generations_.end() ? LeaseGeneration{} : found->second;
}

std::optional<GuardTarget> GatedTenant::end_target(std::uint64_t generation, Home home) noexcept {
  const LeaseGeneration found = find_generation(generation);
  if (found.generation == 0) return std::nullopt;
  const std::shared_lock lock(source_lock_);
  if (source_ == nullptr) return std::nullopt;
  const auto lease = lease_of(*source_, generation);
  return lease != nullptr ? lease->end_target(home)
                          : target_left_by(source_->device(found.device), found, home);
}

std::optional<CUresult> GatedTenant::end(std::uint64_t generation, Ending ending) noexcept {
  const LeaseGeneration found = find_generation(generation);
  const std::shared_lock lock(source_lock_);
  if (found.generation == 0 || source_ == nullptr) return ending.settle(Lease::gone);
  const auto lease = lease_of(*source_, generation);
  if (lease != nullptr) return lease->give_back(std::move(ending));
  UsedDevice& used = source_->device(found.device);
  const auto where = target_left_by(used, found, ending.home);
  if (!where) return ending.settle(Lease::gone);
  try {
    const auto elsewhere = identity().hung.on_other_device(found.device);
    ending.tenant = identities_.back();
    ending.call = [&used, where = *where, call = std::move(ending.call)] {
      if (!used.primary_is_current(where.generation)) return Lease::gone;
      return call_in(*where.driver, where.context, call);
    };
    return (elsewhere != nullptr ? elsewhere : used.family())->end(std::move(ending));
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

bool GatedTenant::ends_with_generation(std::uint64_t generation, Home home) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return false;
  if (found->second.kind == LeaseKind::private_own) return home != Home::device;
  return found->second.kind == LeaseKind::green && home == Home::context;
}

bool GatedTenant::holds_anything_of(std::uint64_t generation) const noexcept {
  try {
    const auto held = ledger().held_by(holder());
    return std::any_of(held.begin(), held.end(),
                       [&](const Holding& one) { return one.generation == generation; });
  } catch (const std::bad_alloc&) {
    return true;
  }
}

bool GatedTenant::has_worked_on(int device) noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(generations_.begin(), generations_.end(),
                     [&](const auto& one) { return one.second.device == device; });
}

void GatedTenant::forget_pools() noexcept {
  const std::lock_guard lock(pools_mutex_);
  pools_.clear();
}

void GatedTenant::count_wait(std::uint64_t nanoseconds) noexcept {
  waits_.fetch_add(1, std::memory_order_relaxed);
  nanoseconds_waited_.fetch_add(nanoseconds, std::memory_order_relaxed);
  std::uint64_t longest = longest_wait_.load(std::memory_order_relaxed);
  while (nanoseconds > longest &&
         !longest_wait_.compare_exchange_weak(longest, nanoseconds, std::memory_order_relaxed)) {
  }
}

WaitTotals GatedTenant::waits() const noexcept {
  return {waits_.load(std::memory_order_relaxed),
          nanoseconds_waited_.load(std::memory_order_relaxed),
          longest_wait_.load(std::memory_order_relaxed)};
}

int GatedTenant::primary_retains() noexcept {
  const std::lock_guard lock(mutex_);
  int all = 0;
  for (const auto& [device, view] : primaries_) all += view.retains;
  return all;
}

void GatedTenant::strike(const char* function, const char* what) noexcept {
  const std::shared_lock lock(source_lock_);
  if (source_ != nullptr) detail::strike(identity(), nullptr, function, what);
}

void GatedTenant::log(Severity severity, std::string_view function, const char* what,
                      const char* topic) noexcept {
  const std::shared_lock lock(source_lock_);
  if (source_ == nullptr) return;
  identity().log(severity, topic, [&] { return std::string(function) + ": " + what; });
}

void GatedTenant::log_once(std::string_view function, const char* what, Severity severity,
                           const char* topic) noexcept {
  if (is_open() && identity().repeats.count(function, {}) == 1) {
    log(severity, function, what, topic);
  }
}

GatedTenant& gated_tenant(const std::shared_ptr<const TenantIdentity>& identity) {
  if (GatedTenant* known = identity->gated.load(std::memory_order_acquire)) return *known;
  All& process = all();
  const std::unique_lock lock(process.lock);
  if (GatedTenant* known = identity->gated.load(std::memory_order_relaxed)) return *known;
  auto its_one = std::find_if(process.tenants.begin(), process.tenants.end(),
                              [](const auto& one) { return one->take_over(); });
  if (its_one == process.tenants.end()) {
    its_one =
        process.tenants.insert(process.tenants.end(), std::make_unique<GatedTenant>(identity));
  }
  GatedTenant& its = **its_one;
  identity->gated.store(&its, std::memory_order_release);
  gated_tenants.store(true, std::memory_order_release);
  return its;
}

GatedTenant* gated_tenant_of(TenantId id) noexcept {
  All& process = all();
  const std::shared_lock lock(process.lock);
  GatedTenant* opened = nullptr;
  for (const auto& tenant : process.tenants) {
    if (tenant->id() == id) return tenant.get();
    if (tenant->identity().id == id) opened = &tenant->main();
  }
  return opened;
}

namespace {

template <typename Matches>
GatedTenant* find_open(Matches&& matches) noexcept {
  All& process = all();
  const std::shared_lock lock(process.lock);
  for (const auto& tenant : process.tenants) {
    if (tenant->is_open() && matches(*tenant)) return tenant.get();
  }
  return nullptr;
}

}  // namespace

GatedTenant* holder_of_context(CUcontext context, const GatedTenant* but) noexcept {
  return find_open([&](GatedTenant& tenant) {
    return (but == nullptr || !tenant.stands_with(*but)) && tenant.holds(context);
  });
}

GatedTenant* holder_of_green(CUgreenCtx green) noexcept {
  return find_open([&](GatedTenant& tenant) { return tenant.lease_with_green(green) != nullptr; });
}

GatedTenant* tenant_on(int device) noexcept {
  return find_open([&](GatedTenant& tenant) { return tenant.has_lease(device); });
}

}  // namespace ctxbroker::detail
