#include "context/lease.hpp"

#include <utility>

#include "context/wait.hpp"
#include "ctxbroker/error.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

Lease::Lease(DeviceHold& device, std::shared_ptr<const TenantIdentity> tenant,
             const LeaseChoice& asked, const LeaseDecision& decision)
    : device_(device),
      fault_(device.fault()),
      tenant_(std::move(tenant)),
      asked_(asked),
      choice_(decision.choice),
      reason_(decision.reason),
      context_(device.make(decision.choice, {device.ordinal(), tenant_->name})),
      primary_generation_(device.primary_generation()),
      users_(context_.context, context_.green != nullptr ? &Lease::make_sibling : nullptr, this),
      target_{&table(), context_.context, next_generation(), &users_} {
  tenant_->say(Severity::info, "lease",
               std::string(to_string(kind())) + " lease over " +
                   std::to_string(context_.granted.multiprocessors) +
                   " multiprocessors on device " + std::to_string(device_.ordinal()) +
                   ", generation " + std::to_string(generation()) + ": " + reason_);
}

CUresult Lease::make_sibling(void* self, CUgreenCtx* green, CUcontext* context) {
  auto& lease = *static_cast<Lease*>(self);
  const CUresult status = lease.note(lease.device_.make_sibling(lease.context_, green, context));
  if (status != CUDA_SUCCESS) {
    try {
      lease.tenant_->say(Severity::warning, "lease",
                         "no green context can be made for a further thread: " +
                             status_text(lease.table(), status));
    } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
    }
  }
  return status;
}

Lease::~Lease() {
  end();
}

void Lease::end() noexcept {
  if (over_.exchange(true, std::memory_order_acq_rel)) return;
  if (untouchable()) return;  // what runs there goes on; its multiprocessors stay taken
  const bool again = life_.load(std::memory_order_acquire) == Life::ready;  // for the next lease
  const bool was_primary_lost = primary_lost();
  end_life(Life::given_up);
  if (device_.fault().happened() || was_primary_lost ||
      life_.load(std::memory_order_acquire) == Life::dead) {
    device_.forget(context_);
    return;
  }
  if (used_from_beside()) {
    keep_memory();
    if (kind() == LeaseKind::private_own) return;
  }
  if (kind() != LeaseKind::shared && borrowers_->load(std::memory_order_acquire) > 0) {
    tenant_->say(Severity::warning, "lease",
                 "a thread outside any guard still has the lease's context current; it is kept "
                 "until the process ends");
    return;
  }
  const ScopedSpan span(SpanCategory::lease, "end lease", tenant_->name.c_str(), tenant_->id,
                        static_cast<std::uint64_t>(device_.ordinal()));
  end_siblings(again);
  report_failed_end(device_.end(context_, again));
}

void Lease::report_failed_end(CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED ||
      is_process_fault(note(status)))
    return;
  try {
    tenant_->say(Severity::warning, "lease",
                 "the lease's context could not be ended: " + status_text(table(), status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor; out of memory for a log line
  }
}

void Lease::end_siblings(bool again) noexcept {
  for (std::size_t index = 1; index < users_.slot_count(); ++index) {
    if (users_.slot(index).context == context_.context) continue;
    LeaseContext sibling = context_;
    sibling.green = users_.slot(index).green;
    sibling.context = users_.slot(index).context;
    report_failed_end(device_.end(sibling, again));
  }
}

template <typename Wait>
CUresult Lease::in_each_context(Wait&& wait) noexcept {
  if (!end_target(Home::context)) return CUDA_SUCCESS;
  const auto wait_in = [&](CUcontext context) {
    return guarded({&table(), context, generation(), nullptr}, {}, wait);
  };
  CUresult status = wait_in(context_.context);
  // A green context's call waits for that one alone.
  for (std::size_t index = 1; index < users_.slot_count() && status == CUDA_SUCCESS; ++index) {
    CUcontext const context = users_.slot(index).context;
    if (context != context_.context) status = wait_in(context);
  }
  return status;
}

CUresult Lease::synchronize() noexcept {
  return note(in_each_context([this] { return table().ctx_synchronize(); }));
}

CUresult Lease::wait_for_default_streams(std::chrono::milliseconds limit) noexcept {
  const CUresult status = in_each_context([&] { return wait_for(table(), nullptr, limit); });
  return status == CUDA_ERROR_TIMEOUT ? status : note(status);
}

// Its work may be without a stream that anybody holds: the end of the context would wait for it.
bool Lease::close_to_all() noexcept {
  if (kind() != LeaseKind::private_own || device_.fault().happened() || used_from_beside() ||
      life_.load(std::memory_order_acquire) != Life::given_up || users_.inside() > 0) {
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
  end_life(Life::dead);
  ended_early_.store(true, std::memory_order_release);
  const ScopedSpan span(SpanCategory::lease, "end lease", tenant_->name.c_str(), tenant_->id,
                        static_cast<std::uint64_t>(device_.ordinal()));
  report_failed_end(device_.end(context_, false));
}

Error Lease::entry_error(CUresult status, const std::string& doing) const {
  return driver_error(table(), status, "cuCtxPushCurrent_v2", doing, owner());
}

bool Lease::has_context(CUcontext context) const noexcept {
  return users_.has_context(context);
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

// Giving back memory of the primary waits for all work in it, also for work that never ends.
bool Lease::untouchable() const noexcept {
  const Life life = life_.load(std::memory_order_acquire);
  return life == Life::buried || life == Life::stranded ||
         (kind() != LeaseKind::private_own && device_.is_stuck());
}

CUcontext Lease::memory_context() const noexcept {
  return kind() == LeaseKind::private_own ? context_.context : device_.primary();
}

LeaseState Lease::state() const noexcept {
  const Life life = life_.load(std::memory_order_acquire);
  if (life == Life::buried) return LeaseState::zombie;
  if (device_.fault().happened()) return LeaseState::ended;
  return life == Life::ready && !primary_lost() ? LeaseState::ready : LeaseState::lost;
}

bool Lease::end_life(Life how) noexcept {
  Life before = Life::ready;
  bool ended = life_.compare_exchange_strong(before, how, std::memory_order_acq_rel);
  // What was given up can turn out to be dead.
  if (!ended && how == Life::dead && before == Life::given_up) {
    ended = life_.compare_exchange_strong(before, how, std::memory_order_acq_rel);
  }
  return ended;
}

CUresult Lease::note(CUresult status) noexcept {
  if (status == CUDA_SUCCESS) return status;
  device_.fault().note(status, table(), device_.ordinal(), *tenant_);
  if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
    if (kind() == LeaseKind::shared) {
      device_.lose_primary(primary_generation_);
    } else if (end_life(Life::dead)) {
      try {
        tenant_->say(Severity::error, "lease",
                     "the context of generation " + std::to_string(generation()) +
                         " was destroyed by somebody; the lease is lost");
      } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
      }
    }
  } else if (status == CUDA_ERROR_INVALID_HANDLE) {
    if (kind() != LeaseKind::private_own) device_.check_primary();
    if (!lost()) give_up("the driver knows handles of it no more");
  }
  return status;
}

void Lease::give_up(const std::string& reason) noexcept {
  if (!end_life(Life::given_up)) return;
  try {
    tenant_->say(Severity::warning, "lease",
                 "generation " + std::to_string(generation()) + " was given up: " + reason);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

// The primary, whose memory it may be, must not end with the broker either.
void Lease::keep_memory() const noexcept {
  if (kind() != LeaseKind::private_own) device_.keep_primary();
}

void Lease::strand() noexcept {
  keep_memory();
  // What is a zombie stays one, and what has ended has.
  for (Life before : {Life::ready, Life::given_up}) {
    if (life_.compare_exchange_strong(before, Life::stranded, std::memory_order_acq_rel)) break;
  }
}

void Lease::bury() noexcept {
  tenant_->endless.note(device_.ordinal());
  if (kind() != LeaseKind::private_own) device_.mark_stuck();
  const bool buried = life_.exchange(Life::buried, std::memory_order_acq_rel) == Life::buried;
  if (buried) return;
  try {
    if (auto self = weak_from_this().lock()) device_.keep(std::move(self));
    tenant_->say(Severity::error, "lease",
                 "work in generation " + std::to_string(generation()) +
                     " does not end; the lease is a zombie and is kept until the process ends" +
                     (driver().handles.size() > 1
                          ? ", and so is the tenant's memory on other devices, which it may use"
                          : ""));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

std::optional<GuardTarget> Lease::end_target(Home home) const noexcept {
  if (device_.fault().happened() || untouchable() || primary_lost()) return std::nullopt;
  if (home != Home::context && used_from_beside()) {
    keep_memory();
    return std::nullopt;
  }
  if (life_.load(std::memory_order_acquire) != Life::dead) return target();
  if (home == Home::context) return std::nullopt;
  if (home == Home::memory && kind() != LeaseKind::green) return std::nullopt;
  if (!device_.primary_lives(primary_generation_)) return std::nullopt;
  return GuardTarget{&table(), device_.primary(), primary_generation_, nullptr};
}

}  // namespace ctxbroker::detail
