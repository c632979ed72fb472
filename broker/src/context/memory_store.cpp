// SPDX-License-Identifier: Apache-2.0
#include "context/memory_store.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "context/hung_work.hpp"
#include "context/open_captures.hpp"
#include "context/timed_wait.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::seconds quiet_time{10};
constexpr std::size_t spare_events = 16;

}  // namespace

MemoryStore::MemoryStore(const Place& place, std::shared_ptr<MemoryPool> pool)
    : driver_(place.driver),
      pool_(std::move(pool)),
      tenant_(place.tenant),
      contexts_(place.contexts),
      primary_(place.primary),
      generation_(place.generation),
      device_(place.ordinal),
      limit_(place.family.limit()) {}

std::shared_ptr<MemoryStore> MemoryStore::make(const Place& place,
                                               std::shared_ptr<MemoryPool> pool) {
  if (pool == nullptr || place.driver.ctx_record_event == nullptr) return nullptr;
  std::shared_ptr<MemoryStore> made(new MemoryStore(place, std::move(pool)));
  made->make_spare_events();
  return made;
}

CUresult MemoryStore::allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept {
  free_what_is_done();
  {
    const std::lock_guard lock(mutex_);
    last_use_ = Clock::now();
  }
  return pool_->allocate(out, bytes);
}

CUresult MemoryStore::allocate_pitched(CUdeviceptr* out, std::size_t* pitch, std::uint64_t width,
                                       std::uint64_t height) noexcept {
  std::uint64_t unit = 0, row = 0, bytes = 0;
  CUresult status = pool_->find_pitch_unit(&unit);
  if (status != CUDA_SUCCESS) return status;
  if (__builtin_add_overflow(width, unit - 1, &row) ||
      __builtin_mul_overflow(row / unit * unit, height, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  status = allocate(out, bytes);
  if (status == CUDA_SUCCESS) *pitch = row / unit * unit;
  return status;
}

// The driver makes no event while it loads a module, and that waits for work.
CUresult MemoryStore::make_event(CUevent* event) const noexcept {
  if (HungWork::is_anything_in_the_making()) return CUDA_ERROR_NOT_READY;
  return call_in(driver_, primary_,
                 [&] { return driver_.event_create(event, CU_EVENT_DISABLE_TIMING); });
}

void MemoryStore::make_spare_events() noexcept {
  const auto is_short = [this] {
    const std::lock_guard lock(mutex_);
    return events_.size() < spare_events;
  };
  for (CUevent event = nullptr; is_short() && make_event(&event) == CUDA_SUCCESS;) {
    keep({&event, 1});
  }
}

CUresult MemoryStore::take_event(CUevent* event) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      *event = events_.back();
      events_.pop_back();
      return CUDA_SUCCESS;
    }
  }
  return make_event(event);
}

// Records an event behind all work that the context has now.
CUresult MemoryStore::record(CUcontext context, std::vector<CUevent>& events) noexcept {
  CUevent event = nullptr;
  CUresult status = take_event(&event);
  if (status != CUDA_SUCCESS) return status;
  status =
      OpenCaptures::all().call_if_none([&] { return driver_.ctx_record_event(context, event); });
  try {
    events.push_back(event);
  } catch (const std::bad_alloc&) {
    driver_.event_destroy(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return status;
}

// Includes all work if the lease is lost, because the tenant's next lease may use the memory.
WorkBehind MemoryStore::record_work(bool beyond_lease) noexcept {
  WorkBehind work;
  CUresult status = CUDA_SUCCESS;
  const auto record_in = [&](CUcontext context) {
    if (status == CUDA_SUCCESS) status = record(context, work.events);
  };
  const bool is_of_lease = !beyond_lease && contexts_(std::ref(record_in));
  if (!is_of_lease) record_in(primary_);
  if (status == CUDA_SUCCESS) {
    work.of = is_of_lease ? WorkBehind::Of::lease : WorkBehind::Of::device;
  } else {
    keep(work.events);
  }
  return work;
}

// Works in the relaxed mode if the thread captures, because a query would end the capture.
bool MemoryStore::have_happened(const std::vector<CUevent>& events) const noexcept {
  const BesideCaptures beside(driver_);
  return std::all_of(events.begin(), events.end(), [this](CUevent event) {
    const CUresult status = driver_.event_query(event);
    return status == CUDA_SUCCESS || is_process_fault(status);
  });
}

// Hung work of the tenant on another device may use the memory, too.
bool MemoryStore::is_over(const WorkBehind& work) const noexcept {
  return work.of != WorkBehind::Of::unknown && have_happened(work.events) &&
         tenant_->hung.on_other_device(device_) == nullptr;
}

bool MemoryStore::wait(const std::vector<CUevent>& events, Clock::time_point until) const noexcept {
  return std::all_of(events.begin(), events.end(), [&](CUevent event) {
    const auto left = std::max<Clock::duration>(until - Clock::now(), std::chrono::nanoseconds(1));
    return wait_for_event(driver_, event, left) != CUDA_ERROR_TIMEOUT;
  });
}

bool MemoryStore::is_held_up() const noexcept {
  const std::lock_guard lock(mutex_);
  return late_ != 0;
}

bool MemoryStore::wait(WorkBehind& work, Clock::time_point until) noexcept {
  work.is_late = is_held_up() ? !have_happened(work.events) : !wait(work.events, until);
  return !work.is_late;
}

// Keeps the events for the next record.
void MemoryStore::keep(std::span<const CUevent> events) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    events_.insert(events_.end(), events.begin(), events.end());
  } catch (const std::bad_alloc&) {
    for (CUevent const event : events) driver_.event_destroy(event);
  }
}

void MemoryStore::keep(std::vector<CUevent>& events) noexcept {
  keep(std::span<const CUevent>(events));
  events.clear();
}

CUresult MemoryStore::give_back(CUdeviceptr address, std::uint64_t bytes, WorkBehind work,
                                std::function<void()> freed) noexcept {
  free_what_is_done();
  if (is_over(work)) {
    keep(work.events);
    const CUresult status = pool_->free(address);
    if (status == CUDA_SUCCESS && freed) freed();
    return status;
  }
  try {
    const std::lock_guard lock(mutex_);
    Waiting& one = waiting_.emplace_back();
    late_ += work.is_late ? 1 : 0;
    one = {address, bytes, std::move(work), std::move(freed)};
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    keep(work.events);
    return CUDA_ERROR_OUT_OF_MEMORY;  // it is held as before
  }
}

// Takes out one entry whose work is over. Work that is not late ends about in the order of its
// records, so only the first entry of each kind that is not over is looked at.
bool MemoryStore::take_done(Waiting& done) noexcept {
  const std::lock_guard lock(mutex_);
  bool is_open[] = {false, false};  // by is_late
  for (auto one = waiting_.begin(); one != waiting_.end(); ++one) {
    bool& looked = is_open[one->work.is_late ? 1 : 0];
    if (looked) continue;
    if (is_over(one->work)) {
      done = std::move(*one);
      waiting_.erase(one);
      late_ -= done.work.is_late ? 1 : 0;
      return true;
    }
    looked = true;
  }
  return false;
}

void MemoryStore::free_what_is_done() noexcept {
  record_unknown();
  for (Waiting done; take_done(done); done = {}) {
    keep(done.work.events);
    pool_->free(done.address);  // if the driver refuses, the memory stays until the process ends
    if (done.freed) done.freed();
  }
}

void MemoryStore::wait_for_frees(Clock::time_point until) noexcept {
  const auto limit = std::max<Clock::duration>(until - Clock::now(), std::chrono::nanoseconds(1));
  ask_until_ready(
      [this] {
        free_what_is_done();
        const std::lock_guard lock(mutex_);
        return waiting_.size() == late_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
      },
      limit);
}

// Records all work on the device for frees that could not record their own work during a capture.
void MemoryStore::record_unknown() noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const bool any = std::any_of(waiting_.begin(), waiting_.end(), [](const Waiting& one) {
        return one.work.of == WorkBehind::Of::unknown;
      });
      if (!any) return;
    }
    WorkBehind all = record_work(true);
    if (all.of == WorkBehind::Of::unknown) return;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(waiting_.begin(), waiting_.end(), [](const Waiting& one) {
        return one.work.of == WorkBehind::Of::unknown;
      });
      if (found != waiting_.end()) {
        found->work.of = all.of;
        found->work.events.swap(all.events);
      }
    }
    keep(all.events);
  }
}

// Memory that waits for late work does not count as unused, because no allocation can get it.
std::uint64_t MemoryStore::unused() noexcept {
  std::uint64_t bytes = pool_->unused();
  const std::lock_guard lock(mutex_);
  for (const Waiting& one : waiting_) {
    if (!one.work.is_late) bytes += one.bytes;
  }
  return bytes;
}

MemoryStore::Trim MemoryStore::begin_trim() noexcept {
  Trim trim;
  trim.frees = pool_->frees();
  trim.work = record_work(true);
  return trim;
}

bool MemoryStore::end_trim(Trim& trim, bool is_over) noexcept {
  keep(trim.work.events);
  return is_over && trim.work.of != WorkBehind::Of::unknown && pool_->trim(trim.frees);
}

bool MemoryStore::trim(Clock::time_point until) noexcept {
  wait_for_frees(until);
  if (!pool_->keeps_unused()) return false;
  Trim trim = begin_trim();
  return end_trim(trim, wait(trim.work.events, until));
}

void MemoryStore::poll() noexcept {
  free_what_is_done();
  make_spare_events();
  const std::unique_lock polls(poll_mutex_, std::try_to_lock);
  if (!polls.owns_lock()) return;
  if (trim_) {
    if (!have_happened(trim_->work.events)) return;
    end_trim(*trim_, true);
    trim_.reset();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - last_use_ < quiet_time) return;
    last_use_ = Clock::now();  // the next one begins as late
  }
  if (pool_->keeps_unused()) trim_ = begin_trim();
}

void MemoryStore::list_put_off(std::vector<PutOff>& list) const {
  PutOff late{tenant_->id, device_, tenant_->name, pool_->what(), 0, 0};
  {
    const std::lock_guard lock(mutex_);
    for (const Waiting& one : waiting_) {
      if (!one.work.is_late) continue;
      ++late.count;
      late.bytes += is_of_host() ? 0 : one.bytes;  // the list has device memory
    }
  }
  if (late.count != 0) list.push_back(std::move(late));
}

bool MemoryStore::end_within(Clock::duration limit) noexcept {
  if (last_.empty()) {
    WorkBehind all = record_work(true);
    if (all.of == WorkBehind::Of::unknown) return false;
    last_.swap(all.events);
  }
  if (!wait(last_, Clock::now() + limit)) return false;
  for (Waiting& one : take_all()) {
    keep(one.work.events);
    pool_->free(one.address);
    if (one.freed) one.freed();
  }
  const CUresult status = pool_->end();
  if (status != CUDA_SUCCESS && status != CUDA_ERROR_DEINITIALIZED && !is_process_fault(status)) {
    const std::uint64_t count = tenant_->repeats.count("lease", "pool");
    if (is_told(count)) {
      tenant_->log(Severity::warning, "lease", [&] {
        return std::string("a pool of ") + pool_->what() +
               " could not be ended: " + status_text(driver_, status) + repeats_text(count);
      });
    }
    return false;  // it is tried again
  }
  if (trim_) keep(trim_->work.events);
  for (CUevent const event : events_) driver_.event_destroy(event);
  for (CUevent const event : last_) driver_.event_destroy(event);
  events_.clear();
  last_.clear();
  return true;
}

// The events were destroyed, too.
bool MemoryStore::end_lost(bool is_last) noexcept {
  for (const Waiting& one : take_all()) {
    if (one.freed) one.freed();
  }
  if (is_last) pool_->end_without_context();
  return is_last;
}

std::deque<MemoryStore::Waiting> MemoryStore::take_all() noexcept {
  const std::lock_guard lock(mutex_);
  late_ = 0;
  return std::exchange(waiting_, {});
}

}  // namespace ctxbroker::detail
