// SPDX-License-Identifier: Apache-2.0
#include "context/lease.hpp"

#include <algorithm>
#include <utility>

#include "context/device_pool.hpp"
#include "context/hung_work.hpp"
#include "context/open_captures.hpp"
#include "context/ownership.hpp"
#include "context/pinned_arena.hpp"
#include "context/realtime_session.hpp"
#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/running_call.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

Lease::Lease(UsedDevice& device, std::uint64_t primary,
             std::shared_ptr<const TenantIdentity> tenant, const LeaseChoice& asked,
             const LeaseDecision& decision, Groups left)
    : device_(device),
      fault_(device.fault()),
      tenant_(std::move(tenant)),
      asked_(asked),
      choice_(decision.choice),
      reason_(decision.reason),
      context_(device.make(decision.choice, primary, std::move(left),
                           {device.ordinal(), tenant_->name})),
      has_partition_(!context_.groups.empty()),
      primary_generation_(primary),
      users_(context_.context,
             {.limit = context_.family->limit(),
              .make = context_.green != nullptr && !decision.one_context ? &Lease::make_sibling
                                                                         : nullptr,
              .report_full = &Lease::report_full,
              .self = this,
              .device = device.ordinal()}),
      target_{&table(), context_.context, next_generation(), &users_},
      family_(context_.family) {
  tenant_->log(Severity::info, "lease",
               std::string(to_string(kind())) + " lease over " +
                   std::to_string(context_.granted.multiprocessors) +
                   " multiprocessors on device " + std::to_string(device_.ordinal()) +
                   ", generation " + std::to_string(generation()) + ": " + reason_);
}

CUresult Lease::make_sibling(void* self, CUgreenCtx* green, CUcontext* context,
                             std::chrono::steady_clock::time_point since) {
  auto& lease = *static_cast<Lease*>(self);
  const CUresult status =
      lease.report_status(lease.device_.make_sibling(lease.context_, green, context, since));
  if (status != CUDA_SUCCESS) {
    const std::uint64_t count = lease.tenant_->repeats.count("lease", "sibling");
    if (!is_told(count)) return status;
    lease.tenant_->log(Severity::warning, "lease", [&] {
      return "no green context can be made for a further thread: " +
             (status == CUDA_ERROR_NOT_READY ? lease.family_->why_not_made()
                                             : status_text(lease.table(), status)) +
             repeats_text(count);
    });
  }
  return status;
}

// Who is inside, and why no other thread gets in.
std::string Lease::why_full() const {
  const std::size_t inside = users_.inside();
  std::string text = std::to_string(inside) + (inside == 1 ? " thread is" : " threads are") +
                     " inside the lease of " + tenant_->name + " on device " +
                     std::to_string(device_ordinal()) + ", and ";
  const bool is_most = inside >= users_.most();
  text += is_most ? "no more fit in"
                  : "no context can be made for a further one: " +
                        (family_->any() ? family_->why_not_made() : "device memory is short");
  text += "; none has left within " + std::to_string(family_->limit().count()) + " ms";
  std::string running;
  for (const RunningCall& call : running_calls()) {
    running += (running.empty() ? "" : ", ") + call.function + " of " +
               (call.plugin.empty() ? call.library : call.plugin) + " on thread " +
               std::to_string(call.thread);
  }
  if (!running.empty()) text += "; plug-ins run: " + running;
  return text;
}

void Lease::report_full(void* self) {
  const auto& lease = *static_cast<const Lease*>(self);
  const std::uint64_t count = lease.tenant_->repeats.count("lease", "full");
  if (!is_told(count)) return;
  lease.tenant_->log(Severity::error, "lease",
                     [&] { return lease.why_full() + repeats_text(count); });
}

Lease::~Lease() {
  end();
}

void Lease::end() noexcept {
  if (over_.exchange(true, std::memory_order_acq_rel)) return;
  {
    const std::lock_guard lock(store_mutex_);
    store_.reset();  // a store ends when all memory from it has been freed
    pinned_store_.reset();
  }
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::left) return;
  if (kind() != LeaseKind::private_own) device_.end_unowned_stores();
  const bool again = phase == Phase::ready;  // one that was given up is not for the next
  const bool was_primary_lost = primary_lost();
  end_generation(Phase::given_up);
  if (device_.fault().happened() || was_primary_lost ||
      phase_.load(std::memory_order_acquire) == Phase::dead) {
    if (has_partition_.exchange(false)) device_.forget(context_.groups);
    return;
  }
  if (kind() == LeaseKind::shared) return;  // the context is everybody's
  if (!close_to_borrowers(*borrowers_)) {
    tenant_->log(Severity::info, "lease",
                 "a thread outside any guard still has the lease's context current; the context "
                 "ends when the thread ends or makes another one current");
    return end_contexts_when_left(again);
  }
  const RealtimeWork work(*tenant_, realtime_call("end lease"));
  const ScopedSpan span(SpanCategory::lease, "end lease", tenant_->name.c_str(), tenant_->id,
                        static_cast<std::uint64_t>(device_.ordinal()));
  end_contexts(again);
}

std::vector<LeaseContext> Lease::contexts() const {
  std::vector<LeaseContext> all{context_};
  for (std::size_t index = 1; index < users_.slot_count(); ++index) {
    if (users_.slot(index).context == context_.context) continue;
    all.push_back(context_);
    all.back().green = users_.slot(index).green;
    all.back().context = users_.slot(index).context;
  }
  return all;
}

// Siblings first. The multiprocessors are free when all have ended.
std::function<CUresult()> Lease::ending_of_contexts(bool again, Groups partition) {
  UsedDevice& device = device_;
  return [&device, all = contexts(), again, groups = std::move(partition)] {
    CUresult first = CUDA_SUCCESS;
    for (auto one = all.rbegin(); one != all.rend(); ++one) {
      const CUresult status = device.end(*one, again);
      if (first == CUDA_SUCCESS) first = status;
    }
    device.forget(groups);
    return first;
  };
}

void Lease::end_contexts(bool again) noexcept {
  try {
    const auto end_all = ending_of_contexts(again, take_partition());
    if (again && kind() == LeaseKind::green) {  // kept for the next lease, without a driver call
      return report_failed_end("its context", end_all());
    }
    Ending ending{.tenant = tenant_,
                  .what = "context",
                  .call = end_all,
                  .is_behind_device = ends_behind_device()};
    std::shared_ptr<HungWork> family = family_;
    if (auto elsewhere = tenant_->hung.on_other_device(device_.ordinal(), family_.get())) {
      // Behind what is put off there, and then in its turn here.
      ending.call = [family, here = ending] { return family->end(here).value_or(CUDA_SUCCESS); };
      ending.is_behind_device = false;
      family = std::move(elsewhere);
    }
    const auto status = family->end(std::move(ending));
    if (status) report_failed_end("its context", *status);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: it stays
  }
}

// The lease may be gone by then.
void Lease::end_contexts_when_left(bool again) noexcept {
  try {
    UsedDevice& device = device_;
    const Groups groups = take_partition();
    const auto end_all = [&device, groups, end = ending_of_contexts(again, groups),
                          stands_on = kind() == LeaseKind::private_own ? 0 : primary_generation_] {
      const bool is_gone =
          device.fault().happened() || (stands_on != 0 && !device.primary_is_current(stands_on));
      if (is_gone) device.forget(groups);
      return is_gone ? CUDA_SUCCESS : end();
    };
    device_.end_left();
    device_.end_when_left(borrowers_, family_,
                          {.tenant = tenant_,
                           .what = "context",
                           .call = end_all,
                           .is_behind_device = ends_behind_device()});
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: it stays
  }
}

void Lease::report_failed_end(const char* what, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (loses_context(status)) {  // said once, for the lease
    report_status(status);
    return;
  }
  tenant_->log(Severity::warning, "lease", [&] {
    return std::string(what) + " could not be ended: " + status_text(table(), status);
  });
}

template <typename Wait>
CUresult Lease::in_each_context(Wait&& wait) noexcept {
  if (!end_target(Home::context)) return CUDA_SUCCESS;
  CUresult status = call_in(table(), context_.context, wait);
  // A green context's call waits for that one alone.
  const std::vector<LeaseContext> all = contexts();
  for (std::size_t index = 1; index < all.size() && status == CUDA_SUCCESS; ++index) {
    status = call_in(table(), all[index].context, wait);
  }
  return status;
}

// Waits for all work in the lease. Beside hung work, the wait is put off. Endings of the family
// that are put off later come after it.
bool Lease::synchronize() noexcept {
  try {
    const auto status = family_->end(
        {.tenant = tenant_, .quiet = true, .call = [self = shared_from_this()] {
           return self->in_each_context([&] { return self->table().ctx_synchronize(); });
         }});
    if (status) report_status(*status);
    return status.has_value();
  } catch (...) {
    return false;
  }
}

CUresult Lease::wait_for_default_streams(std::chrono::milliseconds limit) noexcept {
  const CUresult status = in_each_context([&] { return wait_for(table(), nullptr, limit); });
  return status == CUDA_ERROR_TIMEOUT ? status : report_status(status);
}

bool Lease::has_work_in_default_streams() {
  // A green context is for one thread at a time, so one that a thread is inside is left alone.
  if (kind() == LeaseKind::shared || (kind() == LeaseKind::green && users_.inside() != 0)) {
    return false;
  }
  return is_default_stream_busy();
}

bool Lease::is_default_stream_busy() {
  return in_each_context([&] {
           return is_busy(table(), nullptr) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
         }) == CUDA_ERROR_NOT_READY;
}

// Its work may be without a stream that anybody holds: the end of the context would wait for it.
bool Lease::close_to_all() noexcept {
  if (kind() != LeaseKind::private_own || device_.fault().happened() || holds_up_memory() ||
      phase_.load(std::memory_order_acquire) != Phase::given_up || users_.inside() > 0) {
    return false;
  }
  if (guarded(target(), {}, [&] { return table().stream_query(nullptr); }) != CUDA_SUCCESS) {
    return false;
  }
  if (!close_to_borrowers(*borrowers_)) return false;
  if (users_.close()) return true;
  reopen_to_borrowers(*borrowers_);
  return false;
}

void Lease::reopen() noexcept {
  users_.reopen();
  reopen_to_borrowers(*borrowers_);
}

void Lease::end_closed() noexcept {
  end_generation(Phase::dead);
  ended_early_.store(true, std::memory_order_release);
  users_.close_for_good();
  const RealtimeWork work(*tenant_, realtime_call("end lease"));
  const ScopedSpan span(SpanCategory::lease, "end lease", tenant_->name.c_str(), tenant_->id,
                        static_cast<std::uint64_t>(device_.ordinal()));
  end_contexts(false);
}

Error Lease::entry_error(CUresult status, const std::string& doing) const {
  if (status == no_slot) {
    return {ErrorKind::lease_unavailable,
            doing + ": " + why_full() + "; end guards that are not needed, or use fewer threads",
            {.device = device_ordinal(), .tenant = tenant_->name}};
  }
  return driver_error(table(), status, "cuCtxPushCurrent_v2", doing, owner());
}

LeaseInfo Lease::info() const {
  LeaseInfo info;
  info.tenant = tenant_->id;
  info.tenant_name = tenant_->name;
  info.device = device_.ordinal();
  info.asked = asked_;
  info.granted = context_.granted;
  info.reason = reason_;
  info.generation = generation();
  info.state = state();
  info.context = context_.context;
  return info;
}

bool Lease::shares_memory_with(const Lease& other) const noexcept {
  if (this == &other) return true;
  return &device_ == &other.device_ && kind() != LeaseKind::private_own &&
         other.kind() != LeaseKind::private_own;
}

bool Lease::is_hung() const noexcept {
  const Phase phase = phase_.load(std::memory_order_acquire);
  return phase == Phase::hung || phase == Phase::behind || phase == Phase::left;
}

CUcontext Lease::memory_context() const noexcept {
  return kind() == LeaseKind::private_own ? context_.context : device_.primary();
}

template <typename MakePool>
std::shared_ptr<MemoryStore> Lease::find_store(std::shared_ptr<MemoryStore>& store,
                                               MakePool&& make_pool) noexcept {
  if (kind() == LeaseKind::private_own || lost()) return nullptr;
  const std::lock_guard lock(store_mutex_);
  if (store != nullptr || is_over()) return store;
  try {
    // The contexts of a green lease have only the lease's work.
    const auto contexts = [self = weak_from_this()](const auto& use) {
      const std::shared_ptr<Lease> lease = self.lock();
      return lease != nullptr && lease->kind() == LeaseKind::green &&
             lease->while_contexts_stay(use);
    };
    const std::vector<CUdevice>& devices = driver().handles;
    auto made = MemoryStore::make({table(), tenant_, device_.primary(), primary_generation_,
                                   device_ordinal(), *family_, contexts},
                                  make_pool(devices[static_cast<std::size_t>(device_ordinal())]));
    if (made != nullptr && device_.memory_stores().add(made)) store = std::move(made);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the driver's memory, then
  }
  return store;
}

std::shared_ptr<MemoryStore> Lease::memory_store() noexcept {
  if (!tenant_->uses_store()) return nullptr;
  return find_store(store_, [this](CUdevice device) {
    return DevicePool::make(table(), device_.primary(), device, *family_, tenant_->lasting_name);
  });
}

std::shared_ptr<MemoryStore> Lease::pinned_store() noexcept {
  if (!tenant_->uses_pinned_store()) return nullptr;
  return find_store(pinned_store_, [this](CUdevice device) {
    return PinnedArena::make(table(), device, driver().handles,
                             tenant_->pinned_ahead.load(std::memory_order_relaxed));
  });
}

std::uint64_t Lease::unused_store_bytes() noexcept {
  const std::lock_guard lock(store_mutex_);
  return store_ != nullptr && !lost() ? store_->unused() : 0;
}

CUresult Lease::open_stores(CUdevice other, CUresult enabled) const noexcept {
  const bool is_enabled =
      enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (!is_enabled || kind() == LeaseKind::private_own) return enabled;
  const CUresult opened = device_.memory_stores().open_to(other, primary_generation_);
  return opened == CUDA_SUCCESS ? enabled : opened;
}

LeaseState Lease::state() const noexcept {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::hung || phase == Phase::left) return LeaseState::hung;
  if (device_.fault().happened()) return LeaseState::ended;
  return phase == Phase::ready && !primary_lost() ? LeaseState::ready : LeaseState::lost;
}

bool Lease::end_generation(Phase how) noexcept {
  Phase before = Phase::ready;
  bool ended = phase_.compare_exchange_strong(before, how, std::memory_order_acq_rel);
  // A lease that was given up can turn out to be dead.
  if (!ended && how == Phase::dead && before == Phase::given_up) {
    ended = phase_.compare_exchange_strong(before, how, std::memory_order_acq_rel);
  }
  if (ended) ownership_changed();
  return ended;
}

CUresult Lease::report_status(CUresult status) noexcept {
  if (status == CUDA_SUCCESS) return status;
  device_.fault().report_status(status, table(), device_.ordinal(), *tenant_);
  if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
    if (kind() == LeaseKind::shared) {
      device_.lose_primary(primary_generation_);
    } else if (end_generation(Phase::dead)) {
      tenant_->log(Severity::error, "lease", [&] {
        return "the context of generation " + std::to_string(generation()) +
               " was destroyed by somebody; the lease is lost";
      });
    }
  } else if (status == CUDA_ERROR_INVALID_HANDLE) {
    if (kind() != LeaseKind::private_own) device_.check_primary();
    if (!lost()) give_up("the driver knows handles of it no more");
  }
  return status;
}

void Lease::give_up(const std::string& reason) noexcept {
  if (!end_generation(Phase::given_up)) return;
  tenant_->log(Severity::warning, "lease", [&] {
    return "generation " + std::to_string(generation()) + " was given up: " + reason;
  });
}

// Puts endings in the family off until the work that is in the stream now has ended. Null stands
// for the default streams of all contexts of the lease.
void Lease::put_off_until_done(CUstream stream) noexcept {
  try {
    const bool is_culprit = phase_.load(std::memory_order_acquire) == Phase::hung;
    const auto is_over = [self = shared_from_this(), stream] {
      CUresult status = self->device_.fault().status();
      const auto has_ended_in = [&](CUcontext context) {
        status =
            call_in(self->table(), context, [&] { return self->table().stream_query(stream); });
        return status != CUDA_ERROR_NOT_READY;
      };
      const auto has_ended = [&] {
        if (stream != nullptr) return has_ended_in(self->memory_context());
        const std::vector<LeaseContext> all = self->contexts();
        return std::all_of(all.begin(), all.end(),
                           [&](const LeaseContext& one) { return has_ended_in(one.context); });
      };
      const bool over = status != CUDA_SUCCESS || has_ended();
      if (is_process_fault(status) && self->phase_.load(std::memory_order_acquire) == Phase::hung) {
        self->device_.fault().report_ended_hung_work();
      }
      return over;
    };
    family_->add(is_over, is_culprit ? tenant_->name : std::string());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the next ending finds out
  }
  tenant_->hung.add(device_.ordinal(), family_);
}

void Lease::hang_behind(CUstream stream) noexcept {
  for (Phase before : {Phase::ready, Phase::given_up}) {
    if (phase_.compare_exchange_strong(before, Phase::behind, std::memory_order_acq_rel)) break;
  }
  ownership_changed();
  put_off_until_done(stream);
}

void Lease::hang(CUstream stream) noexcept {
  const bool known = phase_.exchange(Phase::hung, std::memory_order_acq_rel) == Phase::hung;
  ownership_changed();
  put_off_until_done(stream);
  if (known) return;
  tenant_->hung.refuse(device_.ordinal());
  tenant_->log(Severity::error, "lease", [&] {
    return "work in generation " + std::to_string(generation()) +
           " exceeded its timeout; the lease is hung and takes no new work, and what would wait "
           "for the work is put off" +
           (driver().handles.size() > 1
                ? ", and so is the end of the tenant's memory on other devices, which the work may "
                  "use"
                : "");
  });
}

void Lease::leave_for_good() noexcept {
  phase_.store(Phase::left, std::memory_order_release);
  ownership_changed();
  tenant_->hung.refuse(device_.ordinal());
  device_.keep_primary();
}

std::optional<GuardTarget> Lease::end_target(Home home) const noexcept {
  if (device_.fault().happened() || primary_lost()) return std::nullopt;
  const bool is_dead = phase_.load(std::memory_order_acquire) == Phase::dead;
  const bool is_private = kind() == LeaseKind::private_own;
  if (!is_dead && (is_private || home == Home::context)) return target();
  if (home == Home::context || (home == Home::memory && is_private)) return std::nullopt;
  if (!device_.primary_is_current(primary_generation_)) return std::nullopt;
  return GuardTarget{&table(), device_.primary(), primary_generation_, nullptr};
}

// The lease may be gone by then.
void Lease::unload_when_idle(CUmodule module, std::function<void(CUresult)> after) {
  UsedDevice::LateEnding late;
  late.ending.tenant = tenant_;
  late.ending.what = "module";
  late.ending.call = [&driver = device_.driver().table, module] {
    return driver.module_unload(module);
  };
  late.ending.after = std::move(after);
  late.generation = primary_generation_;
  late.failed = "'s module could not be unloaded";
  late.frees_device_memory = true;
  device_.end_when_idle(std::move(late));
}

void Lease::unload_left_behind(CUmodule module) noexcept {
  if (!end_target(Home::memory)) return;
  report_failed_end(
      "module", call_in(table(), memory_context(), [&] { return table().module_unload(module); }));
}

std::optional<CUresult> Lease::give_back(Ending ending) noexcept {
  if (phase_.load(std::memory_order_acquire) == Phase::left) return std::nullopt;
  const auto here = end_target(ending.home);
  if (!here) return ending.settle(gone);
  if (ending.is_stored) {  // a store needs no context
    if (!tenant_->hung.anywhere() && !is_in_callback()) return ending.settle(ending.call());
  } else if (!ending.may_wait && !family_->any()) {
    return ending.settle(guarded_end(*here, ending.call));
  }
  try {
    const auto elsewhere = ending.home == Home::context
                               ? nullptr
                               : tenant_->hung.on_other_device(device_.ordinal(), family_.get());
    if (elsewhere != nullptr) {  // and then it may have to wait here
      device_.keep_primary();
      return elsewhere->end({.tenant = tenant_,
                             .what = ending.what,
                             .bytes = ending.bytes,
                             .quiet = ending.quiet,
                             .call = [self = shared_from_this(), ending] {
                               return self->give_back(ending).value_or(CUDA_SUCCESS);
                             }});
    }
    ending.tenant = tenant_;
    ending.lease = shared_from_this();
    return family_->end(std::move(ending));
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

CUresult Lease::perform(const Ending& ending) noexcept {
  const auto where = end_target(ending.home);
  if (!where) return gone;
  // A green context is for one thread at a time, and its streams can be ended in the primary.
  const bool is_green = kind() == LeaseKind::green;
  return call_in(table(), is_green ? device_.primary() : where->context, ending.call);
}

CUresult Ending::perform() const {
  return lease != nullptr ? lease->perform(*this) : call();
}

}  // namespace ctxbroker::detail
