// SPDX-License-Identifier: Apache-2.0
#include "context/used_device.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "context/guard.hpp"
#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

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

}  // namespace

UsedDevice::UsedDevice(const Driver& driver, int ordinal, const TenantIdentity& host,
                       ProcessFault& fault)
    : link_{driver, ordinal, host, fault}, primary_(link_), shield_(link_) {
  set_end_timeout(end_timeout_);
}

void UsedDevice::set_end_timeout(std::chrono::milliseconds limit) {
  end_timeout_ = limit;
  family_ = std::make_shared<HungWork>("device " + std::to_string(ordinal()), limit);
}

std::shared_ptr<HungWork> UsedDevice::make_family() {
  auto made = std::make_shared<HungWork>(
      "device " + std::to_string(ordinal()) + " in a private context", end_timeout_);
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

UsedDevice::~UsedDevice() {
  try {
    if (!shut_down_) shut_down();
    for (const auto& family : families()) family->abandon();
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the driver's exit clears up
  }
}

bool UsedDevice::shut_down() {
  shut_down_ = true;
  if (fault().happened()) return true;  // the process's CUDA has ended: the driver's exit clears up
  for (const auto& family : families()) {
    if (!family->idle()) return false;
  }
  const std::shared_ptr<const TenantIdentity> host(std::shared_ptr<void>(), &link_.host);
  return family_
      ->end({host, "what the broker holds of the device", 0, true, false,
             [this] {
               end_all();
               return CUDA_SUCCESS;
             }})
      .has_value();
}

void UsedDevice::end_all() noexcept {
  for (const LeaseContext& spare : spares_) {
    if (spare.green != nullptr && !in_use()) continue;  // gone with the primary
    link_.report_failed_end("'s spare context could not be ended", destroy(link_, spare));
  }
  if (keeps_primary_.load(std::memory_order_acquire)) return;  // under its shield
  if (in_use()) shield_.take_down();
  primary_.release();
}

void UsedDevice::use() {
  const std::lock_guard lock(mutex_);
  // Whatever is made on a primary that is gone would revive it, under the same handle, and what was
  // in it would be taken for what is in it now.
  primary_.check();
  if (in_use()) return;
  primary_.retain();
  // Green ones ended with the primary that was lost.
  std::erase_if(spares_, [](const LeaseContext& spare) { return spare.green != nullptr; });
  // A split of its own for each generation would overlap with the partitions cut before.
  if (!split_) split_.emplace(link_.table(), link_.handle());
  shield_.raise(*split_);
  if (fault().happened()) {  // met there, or elsewhere meanwhile: this generation has ended already
    throw driver_error(link_.table(), fault().status(), "cuGreenCtxCreate",
                       "cannot raise the device's shield", link_.host_call());
  }
  primary_.begin_generation(shield_.is_up());
}

Shield UsedDevice::shield() const {
  const std::lock_guard lock(mutex_);
  if (!in_use()) return {false, "the device is not in use"};
  return {shield_.is_up(), shield_.reason()};
}

bool UsedDevice::offers_green() const {
  const std::lock_guard lock(mutex_);
  return split_ && split_->status() == CUDA_SUCCESS;
}

LeaseContext UsedDevice::make(const LeaseChoice& choice, Groups left, CallOwner owner) {
  if (choice.kind == LeaseKind::green) {
    return make_green(choice.multiprocessors, std::move(left), owner);
  }
  forget(left);
  if (choice.kind == LeaseKind::private_own) return make_private(owner);
  LeaseContext made;
  made.granted = {LeaseKind::shared, link_.multiprocessors()};
  made.context = primary();
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
  return create_private(link_, owner);
}

LeaseContext UsedDevice::make_green(unsigned multiprocessors, Groups left, CallOwner owner) {
  const std::lock_guard lock(mutex_);
  Groups groups;
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
  try {
    if (auto spare = take_spare(LeaseKind::green, groups)) return *std::move(spare);
    return green_over(groups, owner);
  } catch (...) {
    split_->give_back(groups);
    throw;
  }
}

// Under the lock.
LeaseContext UsedDevice::green_over(const Groups& groups, CallOwner owner) {
  LeaseContext made;
  made.groups = groups;
  made.granted = {LeaseKind::green, groups.empty() ? split_->total() : split_->size_of(groups)};
  CUresult status = split_->describe(groups, &made.description);
  const char* call = "cuDevResourceGenerateDesc";
  if (status == CUDA_SUCCESS) {
    call = "cuGreenCtxCreate";
    status = create_green(link_, made.description, &made.green, &made.context);
  }
  check(link_.table(), link_.report_status(status), call, owner,
        [] { return "cannot make a green context"; });
  return made;
}

CUresult UsedDevice::make_sibling(const LeaseContext& of, CUgreenCtx* green,
                                  CUcontext* context) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (const auto spare = take_spare(LeaseKind::green, of.groups)) {
      *green = spare->green;
      *context = spare->context;
      return CUDA_SUCCESS;
    }
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return create_green(link_, of.description, green, context);
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

CUresult UsedDevice::make_spare(LeaseKind kind, std::uint64_t most, std::uint64_t* bytes) noexcept {
  try {
    const bool is_green = kind == LeaseKind::green;
    std::unique_lock lock(mutex_, std::defer_lock);
    // A green one is made and kept in one piece: a primary that is lost meanwhile takes what is
    // kept with it. A private one takes a tenth of a second.
    if (is_green) lock.lock();
    const std::uint64_t before = free_memory();
    const LeaseContext spare =
        is_green ? green_over({}, link_.host_call()) : create_private(link_, link_.host_call());
    const std::uint64_t after = free_memory();
    *bytes = after != 0 && before > after ? before - after : 0;
    if (*bytes > most) {
      link_.report_failed_end("'s spare context could not be ended", destroy(link_, spare));
      return CUDA_SUCCESS;
    }
    if (!is_green) lock.lock();
    spares_.push_back(spare);
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
                               EndRequest ending) {
  const std::lock_guard lock(kept_back_mutex_);
  kept_back_.push_back({std::move(lease), std::move(family), std::move(ending)});
  keeps_back_.store(true, std::memory_order_release);
}

void UsedDevice::end_left() noexcept {
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

void UsedDevice::forget(const Groups& groups) noexcept {
  if (groups.empty()) return;
  const std::lock_guard lock(mutex_);
  split_->give_back(groups);
}

}  // namespace ctxbroker::detail
