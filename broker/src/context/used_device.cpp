// SPDX-License-Identifier: Apache-2.0
#include "context/used_device.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "context/guard.hpp"
#include "context/open_captures.hpp"
#include "context/realtime_session.hpp"
#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

// An idle device reaches an event within this time.
constexpr std::chrono::microseconds time_of_an_event{50};
// The end of a lease waits no longer for work of others, so that its tenant's pools end with it.
constexpr std::chrono::milliseconds time_of_a_store{2};

Error no_multiprocessors(const MultiprocessorSplit& split, unsigned asked, CallOwner owner) {
  const std::string why =
      split.groups() == 0
          ? "this device's multiprocessors cannot be split"
          : std::to_string(split.free()) + " of " + std::to_string(split.total()) +
                " multiprocessors are free, in groups of " + std::to_string(split.group_size()) +
                " (other partitions have " + std::to_string(split.grouped() - split.free()) +
                "; the driver puts " + std::to_string(split.total() - split.grouped()) +
                " into no group, and no partition can have those)";
  return {ErrorKind::lease_unavailable,
          "a green lease of " + std::to_string(asked) + " multiprocessors cannot be had: " + why +
              "; ask for fewer, or for \"green\", which reserves none",
          {.device = owner.device, .tenant = std::string(owner.tenant)}};
}

Error not_made(const std::string& why, const char* call, int device, std::string_view tenant) {
  return {ErrorKind::lease_unavailable,
          why,
          {.call = call,
           .status = CUDA_ERROR_NOT_READY,
           .status_name = "CUDA_ERROR_NOT_READY",
           .device = device,
           .tenant = std::string(tenant)}};
}

Error green_not_made(const HungWork& family, const char* what, int device,
                     std::string_view tenant) {
  return not_made(
      std::string(what) + " cannot be made: " + family.why_not_made() +
          ", and the driver makes none before that work ends; try again later, or ask for a "
          "private lease, which does not wait for it",
      "cuGreenCtxCreate", device, tenant);
}

Error not_made_beside_an_end(const HungWork& maker, const char* what, const char* call, int device,
                             std::string_view tenant) {
  return not_made(std::string(what) + " cannot be made: " + maker.why_not_made() +
                      ", and the driver makes none while it ends another one, which waits for that "
                      "work; try again later",
                  call, device, tenant);
}

// Does it without the lock.
template <typename Work>
auto unlocked(std::unique_lock<std::mutex>& lock, Work&& work) {
  struct Again {
    std::unique_lock<std::mutex>& lock;
    ~Again() { lock.lock(); }
  } again{lock};
  lock.unlock();
  return work();
}

}  // namespace

UsedDevice::UsedDevice(const Driver& driver, int ordinal, const TenantIdentity& host,
                       ProcessFault& fault)
    : link_{driver, ordinal, host, fault}, primary_(link_), shield_(link_) {
  set_end_timeout(end_timeout_);
}

void UsedDevice::set_end_timeout(std::chrono::milliseconds limit, BusyTenants* busy) {
  end_timeout_ = limit;
  busy_ = busy;
  family_ = std::make_shared<HungWork>(ordinal(), limit, busy);
  private_maker_ = std::make_shared<HungWork>(ordinal(), limit, static_cast<BusyTenants*>(this));
}

std::shared_ptr<HungWork> UsedDevice::make_family() {
  auto made = std::make_shared<HungWork>(ordinal(), end_timeout_, busy_, " in a private context");
  const std::lock_guard lock(mutex_);
  std::erase_if(private_families_, [](const auto& one) { return one.expired(); });
  private_families_.push_back(made);
  return made;
}

std::vector<std::shared_ptr<HungWork>> UsedDevice::families() const {
  std::vector<std::shared_ptr<HungWork>> all{family_};
  const std::lock_guard lock(mutex_);
  for (const auto& one : private_families_) {
    if (auto family = one.lock()) all.push_back(std::move(family));
  }
  return all;
}

std::vector<std::string> UsedDevice::busy_in(const HungWork& maker) {
  std::vector<std::string> names;
  if (!is_anybody_busy(maker)) return names;
  const auto add = [&](std::vector<std::string> more) {
    for (std::string& name : more) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      names.push_back(std::move(name));
    }
  };
  for (const auto& family : families()) {
    add(family->culprits());
    if (busy_ != nullptr) add(busy_->busy_in(*family));
  }
  return names;
}

bool UsedDevice::is_anybody_busy(const HungWork&) {
  return HungWork::is_context_ending(ordinal());
}

UsedDevice::~UsedDevice() {
  try {
    if (!shut_down_) shut_down();
    private_maker_->abandon();
    for (const auto& family : families()) family->abandon();
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the driver's exit clears up
  }
}

bool UsedDevice::shut_down() {
  shut_down_ = true;
  if (fault().happened()) return true;  // the process's CUDA has ended: the driver's exit clears up
  end_kept(false);
  if (keeps_until_idle_.load(std::memory_order_acquire)) return false;
  if (!private_maker_->idle()) return false;
  for (const auto& family : families()) {
    if (!family->idle()) return false;
  }
  const std::shared_ptr<const TenantIdentity> host(std::shared_ptr<void>(), &link_.host);
  const auto call = [this] {
    end_all();
    return CUDA_SUCCESS;
  };
  const auto ended =
      family_->end({.tenant = host, .what = "what the broker holds of the device", .call = call});
  return ended.has_value();
}

void UsedDevice::end_all() noexcept {
  for (const LeaseContext& spare : spares_) {
    if (spare.green != nullptr && !in_use()) continue;  // gone with the primary
    link_.report_failed_end("'s spare context could not be ended", destroy(link_, spare));
  }
  const std::uint64_t generation = primary_.generation();
  stores_.end_all(end_timeout_, primary_.is_current(generation) ? generation : 0);
  if (keeps_primary_.load(std::memory_order_acquire)) return;  // under its shield
  if (in_use()) shield_.take_down();
  primary_.release();
}

std::uint64_t UsedDevice::use(bool private_only) {
  const Clock::time_point since = Clock::now();
  Lock lock(mutex_);
  // Whatever is made on a primary that is gone would revive it, under the same handle, and what was
  // in it would be taken for what is in it now.
  primary_.check();
  // Its thread waits no longer than the limit.
  used_.wait(lock, [this] { return !is_being_used_; });
  const std::uint64_t known = primary_.generation();
  if (known != 0 && (!shield_is_due_ || private_only)) return known;
  is_being_used_ = true;
  try {
    if (known == 0) {
      retain_primary(lock, since);
      // Green ones ended with the primary that was lost.
      std::erase_if(spares_, [](const LeaseContext& spare) { return spare.green != nullptr; });
      // A split of its own for each generation would overlap with the partitions cut before.
      if (split_ == nullptr) split_ = MultiprocessorSplit::of(link_.table(), link_.handle());
    }
    raise_shield(lock, since, private_only);
  } catch (...) {
    is_being_used_ = false;
    used_.notify_all();
    throw;
  }
  is_being_used_ = false;
  used_.notify_all();
  if (fault().happened()) {  // met there, or elsewhere meanwhile: this generation has ended already
    throw driver_error(link_.table(), fault().status(), "cuGreenCtxCreate",
                       "cannot raise the device's shield", link_.host_call());
  }
  if (known == 0) return primary_.begin_generation(shield_.is_up());
  if (shield_.is_up()) primary_.note_shield(known);
  return known;
}

void UsedDevice::retain_primary(Lock& lock, Clock::time_point since) {
  primary_.report_users();
  // This thread may be in the loader, which the driver may need too.
  if (!HungWork::is_context_ending(ordinal())) {
    CUcontext retained = nullptr;
    const CUresult status =
        unlocked(lock, [&] { return link_.table().primary_retain(&retained, link_.handle()); });
    return primary_.take(retained, status);
  }
  const auto apart = std::make_shared<CUcontext>();
  MakeRequest request;
  request.owner = link_.host.lasting_name;
  request.since = since;
  request.perform = [link = link_, apart] {
    return link.table().primary_retain(apart.get(), link.handle());
  };
  request.undo = [link = link_] { link.table().primary_release(link.handle()); };
  const CUresult status = unlocked(lock, [&] {
    const auto made = private_maker_->make(std::move(request));
    if (made) return *made;
    throw not_made_beside_an_end(*private_maker_, "the device's primary context",
                                 "cuDevicePrimaryCtxRetain", ordinal(), link_.host.name);
  });
  primary_.take(*apart, status);
}

void UsedDevice::raise_shield(Lock& lock, Clock::time_point since, bool may_be_due) {
  LeaseContext made;
  CUresult status = split_->status();
  const bool offered = status == CUDA_SUCCESS;
  if (offered) status = ShieldContext::describe(*split_, &made.description);
  if (status == CUDA_SUCCESS) {
    status = unlocked(lock, [&] { return create_in_time(made, link_.host.lasting_name, since); });
    shield_is_due_ = status == CUDA_ERROR_NOT_READY;
    if (shield_is_due_ && !may_be_due) {
      throw green_not_made(*family_, "the device's shield", ordinal(), link_.host.name);
    }
  }
  shield_.take(made.green, status, offered);
}

CUresult UsedDevice::create_in_time(LeaseContext& made, const char* owner,
                                    Clock::time_point since) {
  const auto apart = std::make_shared<LeaseContext>(made);
  MakeRequest request;
  request.owner = owner;
  request.since = since;
  request.perform = [link = link_, apart] {
    return create_green(link, apart->description, &apart->green, &apart->context);
  };
  request.undo = [this, apart] { keep_or_end(std::move(*apart)); };
  const auto status = family_->make(std::move(request));
  if (!status) return CUDA_ERROR_NOT_READY;
  made.green = apart->green;
  made.context = apart->context;
  return *status;
}

// Nobody waits for the context any more: it is a spare, unless it has ended with its primary or is
// a shield's.
void UsedDevice::keep_or_end(LeaseContext made) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const std::uint64_t generation = made.primary_generation;
    const bool is_private = made.granted.kind == LeaseKind::private_own;
    if (is_private || generation != 0) {
      if (is_private || primary_generation() == generation) spares_.push_back(std::move(made));
      return;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): then it is destroyed
  }
  link_.report_failed_end("'s context could not be ended", destroy(link_, made));
}

void UsedDevice::end_spare(const LeaseContext& spare) {
  constexpr const char* failed = "'s spare context could not be ended";
  if (spare.green != nullptr) return link_.report_failed_end(failed, destroy(link_, spare));
  const std::shared_ptr<const TenantIdentity> host(std::shared_ptr<void>(), &link_.host);
  const auto status =
      make_family()->end({.tenant = host,
                          .what = "context",
                          .call = [link = link_, spare] { return destroy(link, spare); },
                          .is_behind_device = true});
  if (status) link_.report_failed_end(failed, *status);
}

Shield UsedDevice::shield() const {
  const std::lock_guard lock(mutex_);
  if (!in_use()) return {false, "the device is not in use"};
  return {shield_.is_up(), shield_.reason()};
}

bool UsedDevice::offers_green() const {
  const std::lock_guard lock(mutex_);
  return split_ != nullptr && split_->status() == CUDA_SUCCESS;
}

LeaseContext UsedDevice::make(const LeaseChoice& choice, std::uint64_t generation, Groups left,
                              CallOwner owner) {
  LeaseContext made;
  if (choice.kind == LeaseKind::green) {
    made = make_green(choice.multiprocessors, generation, std::move(left), owner);
  } else {
    forget(left);
    if (choice.kind == LeaseKind::private_own) {
      made = make_private(owner);
    } else {
      made.granted = {LeaseKind::shared, link_.multiprocessors()};
      made.context = primary();
    }
  }
  made.primary_generation = generation;
  made.family = choice.kind == LeaseKind::private_own ? make_family() : family_;
  return made;
}

// Under the lock.
std::optional<LeaseContext> UsedDevice::take_spare(LeaseKind kind, const Groups& groups) {
  const auto found = std::find_if(spares_.begin(), spares_.end(), [&](const LeaseContext& spare) {
    return spare.granted.kind == kind && spare.groups == groups;
  });
  if (found == spares_.end()) return std::nullopt;
  LeaseContext spare = std::move(*found);
  spares_.erase(found);
  return spare;
}

LeaseContext UsedDevice::make_private(CallOwner owner) {
  {
    const std::lock_guard lock(mutex_);
    if (auto spare = take_spare(LeaseKind::private_own, {})) return *std::move(spare);
  }
  return fresh_private(owner);
}

LeaseContext UsedDevice::fresh_private(CallOwner owner) {
  const auto apart = std::make_shared<LeaseContext>();
  apart->granted = {LeaseKind::private_own, link_.multiprocessors()};
  MakeRequest request;
  request.owner = lasting(std::string(owner.tenant));
  request.perform = [link = link_, apart] { return create_private(link, &apart->context); };
  request.undo = [this, apart] { keep_or_end(std::move(*apart)); };
  const auto status = private_maker_->make(std::move(request));
  if (!status) {
    throw not_made_beside_an_end(*private_maker_, "a private context", "cuCtxCreate_v2", ordinal(),
                                 owner.tenant);
  }
  check(link_.table(), link_.report_status(*status), "cuCtxCreate_v2", owner,
        [] { return "cannot make a private context"; });
  return *apart;
}

LeaseContext UsedDevice::make_green(unsigned multiprocessors, std::uint64_t generation, Groups left,
                                    CallOwner owner) {
  Groups groups;
  {
    const std::lock_guard lock(mutex_);
    const unsigned size = split_->size_of(left);
    if (size >= multiprocessors && size - split_->group_size() < multiprocessors) {
      groups = std::move(left);
    } else {
      split_->give_back(left);
    }
    if (multiprocessors != 0 && groups.empty()) {
      auto taken = split_->take(multiprocessors);
      if (!taken) throw no_multiprocessors(*split_, multiprocessors, owner);
      groups = *std::move(taken);
    }
    if (auto spare = take_spare(LeaseKind::green, groups)) return *std::move(spare);
  }
  try {
    return green_over(groups, generation, owner);
  } catch (...) {
    forget(groups);
    throw;
  }
}

LeaseContext UsedDevice::green_over(Groups groups, std::uint64_t generation, CallOwner owner) {
  const Clock::time_point since = Clock::now();
  LeaseContext made;
  made.primary_generation = generation;
  made.groups = std::move(groups);
  const char* call = "cuDevResourceGenerateDesc";
  CUresult status = CUDA_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    const bool is_partition = !made.groups.empty();
    made.granted = {LeaseKind::green,
                    is_partition ? split_->size_of(made.groups) : split_->total()};
    status = split_->describe(made.groups, &made.description);
  }
  if (status == CUDA_SUCCESS) {
    call = "cuGreenCtxCreate";
    status = create_in_time(made, lasting(std::string(owner.tenant)), since);
    if (status == CUDA_ERROR_NOT_READY) {
      throw green_not_made(*family_, "a green context", ordinal(), owner.tenant);
    }
  }
  check(link_.table(), link_.report_status(status), call, owner,
        [] { return "cannot make a green context"; });
  return made;
}

CUresult UsedDevice::make_sibling(const LeaseContext& of, CUgreenCtx* green, CUcontext* context,
                                  Clock::time_point since) noexcept {
  try {
    LeaseContext made = of;
    made.family = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto spare = take_spare(LeaseKind::green, of.groups)) {
        *green = spare->green;
        *context = spare->context;
        return CUDA_SUCCESS;
      }
    }
    const CUresult status = create_in_time(made, link_.host.lasting_name, since);
    *green = made.green;
    *context = made.context;
    return status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult UsedDevice::end(const LeaseContext& context, bool again) noexcept {
  CUresult status = CUDA_SUCCESS;
  bool is_spare = false;
  if (again && context.green != nullptr) {
    try {
      const std::lock_guard lock(mutex_);
      spares_.push_back(context);
      is_spare = true;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): then it is destroyed
    }
  }
  if (!is_spare) status = destroy(link_, context);
  return status;
}

// 0: it cannot be told.
std::uint64_t UsedDevice::free_memory() const noexcept {
  std::size_t free = 0, total = 0;
  const GuardTarget primary{&link_.table(), primary_.context(), primary_.generation()};
  guarded(primary, {}, [&] { return link_.table().mem_get_info(&free, &total); });
  return free;
}

void UsedDevice::look_for_fault() noexcept {
  const std::uint64_t generation = primary_.generation();
  if (generation == 0 || !primary_.is_current(generation)) return;
  int least = 0, greatest = 0;
  link_.report_status(guarded({&link_.table(), primary_.context(), generation}, {},
                              [&] { return link_.table().ctx_get_priorities(&least, &greatest); }));
}

CUresult UsedDevice::make_spare(LeaseKind kind, std::uint64_t most, std::uint64_t* bytes) noexcept {
  try {
    const bool is_green = kind == LeaseKind::green;
    const std::uint64_t generation = primary_generation();
    const std::uint64_t before = free_memory();
    LeaseContext spare =
        is_green ? green_over({}, generation, link_.host_call()) : fresh_private(link_.host_call());
    const std::uint64_t after = free_memory();
    *bytes = after != 0 && before > after ? before - after : 0;
    if (*bytes > most) {
      end_spare(spare);
      return CUDA_SUCCESS;
    }
    const std::lock_guard lock(mutex_);
    // A primary that was lost meanwhile has taken a green one with it.
    if (!is_green || primary_generation() == generation) spares_.push_back(std::move(spare));
    return CUDA_SUCCESS;
  } catch (const Error& error) {
    return static_cast<CUresult>(error.origin().status);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

std::size_t UsedDevice::spares(LeaseKind kind) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(spares_.begin(), spares_.end(), [&](const LeaseContext& spare) {
        return spare.granted.kind == kind && spare.groups.empty();
      }));
}

void UsedDevice::end_when_left(std::shared_ptr<Borrowers> lease, std::shared_ptr<HungWork> family,
                               Ending ending) {
  const std::lock_guard lock(kept_back_mutex_);
  kept_back_.push_back({std::move(lease), std::move(family), std::move(ending)});
  keeps_back_.store(true, std::memory_order_release);
}

// While something is made, the driver may make no event.
void UsedDevice::end_unowned_stores() noexcept {
  if (HungWork::is_anything_in_the_making()) return;
  const std::uint64_t generation = primary_.generation();
  if (is_in_callback() || fault().happened() || generation == 0) return;
  if (primary_.is_current(generation)) stores_.end_unowned(time_of_a_store, generation);
}

void UsedDevice::end_left() noexcept {
  const std::uint64_t generation = primary_.generation();
  if (generation != 0 && primary_.is_current(generation)) stores_.poll(generation);
  if (!keeps_back_.load(std::memory_order_acquire)) return;
  std::vector<KeptBack> left;
  {
    const std::lock_guard lock(kept_back_mutex_);
    const auto first =
        std::stable_partition(kept_back_.begin(), kept_back_.end(),
                              [](const KeptBack& one) { return !close_to_borrowers(*one.lease); });
    std::move(first, kept_back_.end(), std::back_inserter(left));
    kept_back_.erase(first, kept_back_.end());
    keeps_back_.store(!kept_back_.empty(), std::memory_order_release);
  }
  for (KeptBack& one : left) {
    try {
      const auto status = one.family->end(std::move(one.ending));
      if (status) link_.report_failed_end("'s context could not be ended", *status);
    } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: it stays
    }
  }
}

std::vector<PutOff> UsedDevice::kept_back() const {
  const std::lock_guard lock(kept_back_mutex_);
  std::vector<PutOff> list;
  for (const KeptBack& one : kept_back_) {
    list.push_back({one.ending.tenant->id, ordinal(), one.ending.tenant->name, one.ending.what, 1});
  }
  return list;
}

// The thing ends with its generation of the primary context.
Ending UsedDevice::in_primary(LateEnding late) {
  Ending ending = std::move(late.ending);
  const std::uint64_t generation = late.generation;
  ending.call = [this, generation, call = std::move(ending.call)] {
    if (fault().happened() || !primary_.is_current(generation)) return CUDA_ERROR_DEINITIALIZED;
    return call_in(link_.table(), primary(), call);
  };
  ending.after = [this, generation, failed = late.failed,
                  after = std::move(ending.after)](CUresult status) {
    if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED) lose_primary(generation);
    link_.report_failed_end(failed, status);
    if (after) after(status);
  };
  return ending;
}

void UsedDevice::end_when_idle(LateEnding late) {
  const bool frees_device_memory = late.frees_device_memory;
  KeptUntilIdle kept{in_primary(std::move(late)), frees_device_memory};
  const std::lock_guard lock(kept_back_mutex_);
  kept_until_idle_.push_back(std::move(kept));
  keeps_until_idle_.store(true, std::memory_order_release);
}

bool UsedDevice::end_now(LateEnding late) {
  if (is_in_callback() ||
      late.ending.tenant->hung.on_other_device(ordinal(), family_.get()) != nullptr) {
    end_when_idle(std::move(late));
    return false;
  }
  return family_->end(in_primary(std::move(late))).has_value();
}

CUresult UsedDevice::register_pages(void* begin, std::size_t bytes,
                                    std::uint64_t* generation) noexcept {
  *generation = primary_.generation();
  if (*generation == 0 || !primary_.is_current(*generation)) {
    *generation = 0;
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const GuardTarget target{&link_.table(), primary(), *generation};
  return link_.report_status(guarded(target, {}, [&] {
    return link_.table().mem_host_register(begin, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  }));
}

// Returns whether nothing runs in the primary context and the green contexts on it. Does not wait
// for work. An event of the primary context is behind all of it, also behind work of code that the
// broker does not know.
bool UsedDevice::is_idle() noexcept {
  const std::uint64_t generation = primary_.generation();
  if (fault().happened() || !primary_.is_current(generation)) return true;
  // While the driver loads a module, it makes no event.
  if (family_->any() || HungWork::is_anything_in_the_making()) return false;
  const DriverTable& driver = link_.table();
  if (driver.ctx_record_event == nullptr) {
    try {
      return busy_ == nullptr || !busy_->is_anybody_busy(*family_);
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  CUevent event = nullptr;
  const auto create = [&] { return driver.event_create(&event, CU_EVENT_DISABLE_TIMING); };
  CUresult status = link_.report_status(call_in(driver, primary(), create));
  if (status != CUDA_SUCCESS) return false;
  status =
      OpenCaptures::all().call_if_none([&] { return driver.ctx_record_event(primary(), event); });
  if (status == CUDA_SUCCESS) {
    const BesideCaptures beside(driver);
    const Clock::time_point latest = Clock::now() + time_of_an_event;
    do {
      status = driver.event_query(event);
    } while (status == CUDA_ERROR_NOT_READY && Clock::now() < latest);
  }
  driver.event_destroy(event);
  return link_.report_status(status) == CUDA_SUCCESS;
}

void UsedDevice::end_if_idle() noexcept {
  if (keeps_until_idle_.load(std::memory_order_acquire) && is_idle()) end_kept(false);
}

std::size_t UsedDevice::end_kept(bool for_memory) const noexcept {
  if (!keeps_until_idle_.load(std::memory_order_acquire) || is_in_callback()) return 0;
  std::vector<KeptUntilIdle> now;
  try {
    {
      const std::lock_guard lock(kept_back_mutex_);
      now.reserve(kept_until_idle_.size());
      // Work of the tenant that hangs on another device may use a module's variables, or memory.
      const auto first = std::stable_partition(
          kept_until_idle_.begin(), kept_until_idle_.end(), [&](const KeptUntilIdle& one) {
            return (for_memory && !one.frees_device_memory) ||
                   one.ending.tenant->hung.on_other_device(ordinal(), family_.get()) != nullptr;
          });
      std::move(first, kept_until_idle_.end(), std::back_inserter(now));
      kept_until_idle_.erase(first, kept_until_idle_.end());
      keeps_until_idle_.store(!kept_until_idle_.empty(), std::memory_order_release);
    }
    for (KeptUntilIdle& one : now) family_->end(std::move(one.ending));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): they stay
  }
  return now.size();
}

bool UsedDevice::relieve() const noexcept {
  const bool trimmed = stores_.trim(end_timeout_, primary_.generation());
  const bool unloaded = !RealtimeSession::anywhere() && end_for_memory() != 0;
  return (relief_ != nullptr && relief_->relieve(ordinal())) || trimmed || unloaded;
}

void UsedDevice::forget(const Groups& groups) noexcept {
  if (groups.empty()) return;
  const std::lock_guard lock(mutex_);
  split_->give_back(groups);
}

}  // namespace ctxbroker::detail
