#include "context/device_hold.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "context/guard.hpp"
#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

// The one flag that a green context must be made with.
constexpr unsigned green_flags = CU_GREEN_CTX_DEFAULT_STREAM;

CUresult create(const DriverTable& driver, CUdevice device, CUdevResourceDesc description,
                CUgreenCtx* green, CUcontext* context) noexcept {
  const CUresult created = driver.green_create(green, description, device, green_flags);
  if (created != CUDA_SUCCESS) return created;
  const CUresult converted = driver.green_context(context, *green);
  if (converted != CUDA_SUCCESS) {
    driver.green_destroy(*green);
    *green = nullptr;
  }
  return converted;
}

Error no_multiprocessors(const MultiprocessorSplit& split, unsigned asked, CallOwner owner) {
  const std::string why =
      split.groups() == 0
          ? "this device's multiprocessors cannot be split"
          : std::to_string(split.free()) + " of " + std::to_string(split.total()) +
                " multiprocessors are free, in groups of " + std::to_string(split.group_size());
  return {ErrorKind::lease_unavailable,
          "a green lease of " + std::to_string(asked) + " multiprocessors cannot be had: " + why +
              "; ask for fewer, or for \"green\", which reserves none",
          {.device = owner.device, .tenant = std::string(owner.tenant)}};
}

}  // namespace

DeviceHold::DeviceHold(const Driver& driver, int ordinal, const TenantIdentity& host,
                       ProcessFault& fault)
    : driver_(driver), ordinal_(ordinal), host_(host), fault_(fault) {}

DeviceHold::~DeviceHold() {
  // The process's CUDA has ended, or would be waited for without end: the driver's exit clears up.
  if (fault_.happened() || is_stuck()) return;
  for (const LeaseContext& spare : spares_) {
    if (spare.green != nullptr && primary_generation() == 0) continue;  // gone with the primary
    report_failed_end("spare context could not be ended", destroy(spare));
  }
  if (shield_ != nullptr && primary_generation() != 0) {
    report_failed_end("shield could not be taken down", driver_.table.green_destroy(shield_));
  }
  for (; retains_ > 0; --retains_) {
    const CUresult status = driver_.table.primary_release(handle());
    // Somebody else's shield, or somebody who released for us: no harm in either.
    if (status == CUDA_ERROR_NOT_PERMITTED || status == CUDA_ERROR_INVALID_CONTEXT) continue;
    report_failed_end("primary context could not be released", status);
  }
}

void DeviceHold::report_failed_end(const char* what, CUresult status) const noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (is_process_fault(status)) {
    fault_.raise(status);
    return;  // there is nothing left to end
  }
  try {
    host_.say(Severity::warning, "device",
              "device " + std::to_string(ordinal_) + "'s " + what + ": " +
                  status_text(driver_.table, status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor; out of memory for a log line
  }
}

bool DeviceHold::primary_is_active() const noexcept {
  unsigned flags = 0;
  int active = 0;
  return driver_.table.primary_get_state != nullptr &&
         driver_.table.primary_get_state(handle(), &flags, &active) == CUDA_SUCCESS && active != 0;
}

// Flags of the primary are for its first user to choose. The broker needs none, so it adopts what
// it finds, and says so: a host that reads of flags it did not set knows where to look.
void DeviceHold::report_primary_of_others() const {
  unsigned flags = 0;
  int active = 0;
  if (driver_.table.primary_get_state == nullptr ||
      driver_.table.primary_get_state(handle(), &flags, &active) != CUDA_SUCCESS ||
      (active == 0 && flags == 0)) {
    return;
  }
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", flags);
  host_.say(Severity::info, "device",
            "device " + std::to_string(ordinal_) + "'s primary context " +
                (active != 0 ? "is in use already, with flags " : "was given flags by others: ") +
                text + "; it is taken as it is");
}

void DeviceHold::check_primary() noexcept {
  const std::uint64_t generation = primary_generation();
  unsigned flags = 0;
  int active = 1;
  if (generation == 0 || driver_.table.primary_get_state == nullptr) return;
  const CUresult status = driver_.table.primary_get_state(handle(), &flags, &active);
  if (status == CUDA_SUCCESS && active == 0) lose_primary(generation);
}

void DeviceHold::use() {
  const std::lock_guard lock(mutex_);
  // Whatever is made on a primary that is gone would revive it, under the same handle, and what was
  // in it would be taken for what is in it now.
  check_primary();
  if (in_use()) return;
  if (retains_ == 0) report_primary_of_others();
  const CUresult status = driver_.table.primary_retain(&primary_, handle());
  if (is_process_fault(status)) fault_.raise(status);
  check(driver_.table, status, "cuDevicePrimaryCtxRetain", {ordinal_, host_.name},
        [] { return "cannot retain the device's primary context"; });
  ++retains_;
  // Green ones ended with the primary that was lost.
  std::erase_if(spares_, [](const LeaseContext& spare) { return spare.green != nullptr; });
  // A split of its own for each life would overlap with the partitions cut before.
  if (!split_) split_.emplace(driver_.table, handle());
  raise_shield();
  primary_generation_.store(next_generation(), std::memory_order_release);
}

void DeviceHold::raise_shield() noexcept {
  shield_ = nullptr;
  try {
    CUresult status = split_->status();
    const char* what = "the driver offers no green contexts";
    if (status == CUDA_SUCCESS) {
      what = "the shield's green context cannot be made";
      // The smallest there is: nothing ever runs in it.
      CUdevResourceDesc description = nullptr;
      std::vector<std::size_t> least;
      if (split_->groups() > 0) least.push_back(0);
      status = split_->describe(least, &description);
      CUcontext unused = nullptr;
      if (status == CUDA_SUCCESS) {
        status = create(driver_.table, handle(), description, &shield_, &unused);
      }
    }
    no_shield_.clear();
    if (status == CUDA_SUCCESS) return;
    no_shield_ = std::string(what) + ": " + status_text(driver_.table, status);
    // An old driver is no news on every start; a shield that should stand and does not, is.
    const bool offered = split_->status() == CUDA_SUCCESS;
    host_.say(offered ? Severity::warning : Severity::info, "shield",
              "device " + std::to_string(ordinal_) + " has no shield (" + no_shield_ +
                  "): a plug-in that resets the device ends its neighbours' work");
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
}

Shield DeviceHold::shield() const {
  const std::lock_guard lock(mutex_);
  if (!in_use()) return {false, "the device is not in use"};
  return {shield_ != nullptr, no_shield_};
}

bool DeviceHold::offers_green() const {
  const std::lock_guard lock(mutex_);
  return split_ && split_->status() == CUDA_SUCCESS;
}

unsigned DeviceHold::group_size() const {
  const std::lock_guard lock(mutex_);
  return split_ ? split_->group_size() : 0;
}

unsigned DeviceHold::free_multiprocessors() const {
  const std::lock_guard lock(mutex_);
  return split_ ? split_->free() : 0;
}

void DeviceHold::lose_primary(std::uint64_t generation) noexcept {
  if (!primary_generation_.compare_exchange_strong(generation, 0, std::memory_order_acq_rel))
    return;
  try {
    host_.say(Severity::error, "device",
              "device " + std::to_string(ordinal_) +
                  "'s primary context was destroyed; every shared and green lease on it is lost");
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

LeaseContext DeviceHold::make(const LeaseChoice& choice, CallOwner owner) {
  switch (choice.kind) {
    case LeaseKind::private_own: {
      {
        const std::lock_guard lock(mutex_);
        if (auto spare = take_spare(LeaseKind::private_own, {})) return *std::move(spare);
      }
      return create_private(owner);
    }
    case LeaseKind::green:
      return make_green(choice.multiprocessors, owner);
    default:
      break;
  }
  LeaseContext made;
  made.granted = {
      LeaseKind::shared,
      static_cast<unsigned>(driver_.devices[static_cast<std::size_t>(ordinal_)].multiprocessors)};
  made.context = primary_;
  return made;
}

std::optional<LeaseContext> DeviceHold::take_spare(LeaseKind kind,
                                                   const std::vector<std::size_t>& groups) {
  const auto fits = [&](const LeaseContext& spare) {
    return spare.granted.kind == kind && spare.groups == groups;
  };
  const auto found = std::find_if(spares_.begin(), spares_.end(), fits);
  if (found == spares_.end()) return std::nullopt;
  LeaseContext spare = std::move(*found);
  spares_.erase(found);
  return spare;
}

LeaseContext DeviceHold::create_private(CallOwner owner) {
  LeaseContext made;
  made.granted = {
      LeaseKind::private_own,
      static_cast<unsigned>(driver_.devices[static_cast<std::size_t>(ordinal_)].multiprocessors)};
  // cuCtxCreate pushes what it makes; inside a guard for "no context" that is undone in any case.
  const GuardTarget nowhere{&driver_.table, nullptr, 0};
  const CUresult status =
      guarded(nowhere, {}, [&] { return driver_.table.ctx_create(&made.context, 0, handle()); });
  if (is_process_fault(status)) fault_.raise(status);
  check(driver_.table, status, "cuCtxCreate_v2", owner,
        [] { return "cannot make a private context"; });
  return made;
}

LeaseContext DeviceHold::make_green(unsigned multiprocessors, CallOwner owner) {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> groups;
  if (multiprocessors != 0) {
    auto taken = split_->take(multiprocessors);
    if (!taken) throw no_multiprocessors(*split_, multiprocessors, owner);
    groups = *std::move(taken);
  }
  try {
    if (auto spare = take_spare(LeaseKind::green, groups)) return *std::move(spare);
    return create_green(groups, owner);
  } catch (...) {
    split_->give_back(groups);
    throw;
  }
}

// Under the lock.
LeaseContext DeviceHold::create_green(const std::vector<std::size_t>& groups, CallOwner owner) {
  LeaseContext made;
  made.groups = groups;
  made.granted = {LeaseKind::green, groups.empty() ? split_->total() : split_->size_of(groups)};
  CUresult status = split_->describe(groups, &made.description);
  const char* call = "cuDevResourceGenerateDesc";
  if (status == CUDA_SUCCESS) {
    call = "cuGreenCtxCreate";
    status = create(driver_.table, handle(), made.description, &made.green, &made.context);
  }
  if (is_process_fault(status)) fault_.raise(status);
  check(driver_.table, status, call, owner, [] { return "cannot make a green context"; });
  return made;
}

CUresult DeviceHold::make_sibling(const LeaseContext& of, CUgreenCtx* green,
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
  return create(driver_.table, handle(), of.description, green, context);
}

CUresult DeviceHold::destroy(const LeaseContext& context) noexcept {
  if (context.green != nullptr) return driver_.table.green_destroy(context.green);
  if (context.granted.kind != LeaseKind::private_own) return CUDA_SUCCESS;
  // Destroying a context that is current pops it: keep the caller's stack out of it.
  return guarded({&driver_.table, nullptr, 0}, {},
                 [&] { return driver_.table.ctx_destroy(context.context); });
}

CUresult DeviceHold::end(const LeaseContext& context, bool again) noexcept {
  CUresult status = CUDA_SUCCESS;
  bool kept = false;
  if (again && context.green != nullptr) {
    try {
      const std::lock_guard lock(mutex_);
      spares_.push_back(context);
      kept = true;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): then it is destroyed
    }
  }
  if (!kept) status = destroy(context);
  forget(context);
  return status;
}

CUresult DeviceHold::make_spare(LeaseKind kind, std::uint64_t* bytes) noexcept {
  const auto free_memory = [this] {
    std::size_t free = 0, total = 0;
    const GuardTarget primary{&driver_.table, primary_, primary_generation()};
    guarded(primary, {}, [&] { return driver_.table.mem_get_info(&free, &total); });
    return free;
  };
  try {
    const std::size_t before = free_memory();
    LeaseContext spare;
    {
      // Green ones are made under the lock; a private one takes a tenth of a second and need not
      // be.
      std::unique_lock lock(mutex_);
      if (kind == LeaseKind::private_own) lock.unlock();
      const CallOwner owner{ordinal_, host_.name};
      spare = kind == LeaseKind::private_own ? create_private(owner) : create_green({}, owner);
      if (!lock) lock.lock();
      spares_.push_back(std::move(spare));
    }
    const std::size_t after = free_memory();
    *bytes = before > after ? before - after : 0;
    return CUDA_SUCCESS;
  } catch (const Error& error) {
    return static_cast<CUresult>(error.origin().status);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

std::size_t DeviceHold::spares(LeaseKind kind) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(spares_.begin(), spares_.end(), [&](const LeaseContext& spare) {
        return spare.granted.kind == kind && spare.groups.empty();
      }));
}

void DeviceHold::forget(const LeaseContext& context) noexcept {
  if (context.groups.empty()) return;
  const std::lock_guard lock(mutex_);
  split_->give_back(context.groups);
}

}  // namespace ctxbroker::detail
