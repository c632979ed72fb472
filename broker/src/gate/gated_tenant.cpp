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

std::uint64_t GatedTenant::generation_of(CUcontext current) noexcept {
  if (current == nullptr) return 0;
  // Within a guard the frame knows; its generation is in the map after the first time.
  if (const Frame* frame = pushed_frame(); frame != nullptr && frame->target.context == current) {
    const std::lock_guard lock(mutex_);
    if (generations_.count(frame->target.generation) != 0) return frame->target.generation;
  }
  const std::shared_lock lock(source_lock_);
  if (source_ == nullptr) return 0;
  const LeaseGeneration found = source_->generation_of(current);
  if (found.generation == 0) return 0;
  const std::lock_guard views(mutex_);
  try {
    generations_.emplace(found.generation, found);
  } catch (...) {
    return 0;  // what is made cannot be given back before its context ends
  }
  return found.generation;
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
  return source_ != nullptr ? source_->end_target(found, home) : std::nullopt;
}

std::optional<CUresult> GatedTenant::end(std::uint64_t generation, Lease::Thing thing) noexcept {
  const LeaseGeneration found = find_generation(generation);
  const std::shared_lock lock(source_lock_);
  if (found.generation != 0 && source_ != nullptr) return source_->end(found, std::move(thing));
  if (thing.after) thing.after(Lease::gone);
  return Lease::gone;
}

std::optional<CUresult> GatedTenant::end_own_context(int device, Lease::Thing thing) noexcept {
  const std::shared_lock lock(source_lock_);
  if (source_ != nullptr) return source_->end_own_context(device, std::move(thing));
  const CUresult status = thing.call();
  if (thing.after) thing.after(status);
  return status;
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
