// SPDX-License-Identifier: Apache-2.0
#include "context/memory_store.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "context/hung_work.hpp"
#include "context/open_captures.hpp"
#include "context/timed_wait.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::seconds quiet_time{10};

bool has_pools(const DriverTable& driver) noexcept {
  return driver.pool_create != nullptr && driver.pool_destroy != nullptr &&
         driver.pool_set_attribute != nullptr && driver.pool_get_attribute != nullptr &&
         driver.pool_set_access != nullptr && driver.pool_trim != nullptr &&
         driver.mem_alloc_from_pool != nullptr && driver.mem_free_async != nullptr &&
         driver.mem_alloc_pitch != nullptr && driver.ctx_record_event != nullptr;
}

CUresult set_threshold(const DriverTable& driver, CUmemoryPool pool, cuuint64_t bytes) noexcept {
  return driver.pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

// Makes the pool keep freed memory. The pool does not make its stream wait for another stream: a
// tenant can free memory in the order of its own stream, and the work of that stream may hang.
CUresult set_up(const DriverTable& driver, CUmemoryPool pool) noexcept {
  int no = 0;
  const CUresult status = set_threshold(driver, pool, std::numeric_limits<cuuint64_t>::max());
  return status == CUDA_SUCCESS ? driver.pool_set_attribute(
                                      pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no)
                                : status;
}

}  // namespace

MemoryStore::MemoryStore(const Place& place)
    : driver_(place.driver),
      tenant_(place.tenant),
      contexts_(place.contexts),
      primary_(place.primary),
      generation_(place.generation),
      device_(place.ordinal),
      limit_(place.family.limit()) {}

// HungWork makes it, because the driver creates no stream while it loads a module and waits there.
std::shared_ptr<MemoryStore> MemoryStore::make(const Place& place) noexcept {
  if (!has_pools(place.driver)) return nullptr;
  try {
    std::shared_ptr<MemoryStore> made(new MemoryStore(place));
    MakeRequest request;
    request.owner = place.tenant->lasting_name;
    request.is_light = true;
    request.perform = [made, device = place.device] {
      return call_in(made->driver_, made->primary_, [&] { return made->open(device); });
    };
    request.undo = [made] { made->close(); };
    return place.family.make(std::move(request)) == CUDA_SUCCESS ? made : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

CUresult MemoryStore::open(CUdevice device) noexcept {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUresult status = driver_.pool_create(&pool_, &properties);
  if (status != CUDA_SUCCESS) return status;
  status = set_up(driver_, pool_);
  if (status == CUDA_SUCCESS) status = driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING);
  if (status != CUDA_SUCCESS) driver_.pool_destroy(pool_);
  return status;
}

void MemoryStore::close() noexcept {
  if (trim_) keep(trim_->work.events);
  for (CUevent const event : events_) driver_.event_destroy(event);
  for (CUevent const event : last_) driver_.event_destroy(event);
  events_.clear();
  last_.clear();
  driver_.stream_synchronize(stream_);
  driver_.pool_destroy(pool_);
  driver_.stream_destroy(stream_);
}

CUresult MemoryStore::allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept {
  free_what_is_done();
  {
    const std::lock_guard lock(mutex_);
    last_use_ = Clock::now();
  }
  CUresult status = driver_.mem_alloc_from_pool(out, bytes, pool_, stream_);
  if (status != CUDA_SUCCESS) return status;
  status = driver_.stream_synchronize(stream_);
  if (status != CUDA_SUCCESS) free_now(*out);
  return status;
}

// Lets the driver allocate a row of one byte, because no attribute of a device is documented to be
// the unit. The free of the row is in the order of a stream, so it waits for no neighbour.
CUresult MemoryStore::find_pitch_unit(std::uint64_t* unit) noexcept {
  *unit = pitch_unit_.load(std::memory_order_relaxed);
  if (*unit != 0) return CUDA_SUCCESS;
  CUdeviceptr shown = 0;
  std::size_t pitch = 0;
  constexpr unsigned int least_element = 4;
  const CUresult status = driver_.mem_alloc_pitch(&shown, &pitch, 1, 1, least_element);
  if (status != CUDA_SUCCESS) return status;
  if (free_now(shown) != CUDA_SUCCESS) driver_.mem_free(shown);
  *unit = pitch;
  pitch_unit_.store(pitch, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult MemoryStore::allocate_pitched(CUdeviceptr* out, std::size_t* pitch, std::uint64_t width,
                                       std::uint64_t height) noexcept {
  std::uint64_t unit = 0, row = 0, bytes = 0;
  CUresult status = find_pitch_unit(&unit);
  if (status != CUDA_SUCCESS) return status;
  if (__builtin_add_overflow(width, unit - 1, &row) ||
      __builtin_mul_overflow(row / unit * unit, height, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  status = allocate(out, bytes);
  if (status == CUDA_SUCCESS) *pitch = row / unit * unit;
  return status;
}

CUresult MemoryStore::free_now(CUdeviceptr address) noexcept {
  const std::lock_guard lock(mutex_);
  ++frees_;
  return driver_.mem_free_async(address, stream_);
}

// Records an event behind all work that the context has now.
CUresult MemoryStore::record(CUcontext context, std::vector<CUevent>& events) noexcept {
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      event = events_.back();
      events_.pop_back();
    }
  }
  const auto create = [&] { return driver_.event_create(&event, CU_EVENT_DISABLE_TIMING); };
  CUresult status = event != nullptr ? CUDA_SUCCESS : call_in(driver_, primary_, create);
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
void MemoryStore::keep(std::vector<CUevent>& events) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    events_.insert(events_.end(), events.begin(), events.end());
  } catch (const std::bad_alloc&) {
    for (CUevent const event : events) driver_.event_destroy(event);
  }
  events.clear();
}

CUresult MemoryStore::give_back(CUdeviceptr address, std::uint64_t bytes, WorkBehind work,
                                std::function<void()> freed) noexcept {
  free_what_is_done();
  if (is_over(work)) {
    keep(work.events);
    const CUresult status = free_now(address);
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
    free_now(done.address);  // if the driver refuses, the memory stays until the process ends
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

CUresult MemoryStore::open_to(CUdevice other) noexcept {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {other}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver_.pool_set_access(pool_, &access, 1);
}

std::uint64_t MemoryStore::bytes(CUmemPool_attribute which) const noexcept {
  cuuint64_t bytes = 0;
  return driver_.pool_get_attribute(pool_, which, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

// Memory that waits for late work does not count as unused, because no allocation can get it. The
// pool counts a free only when its stream has come to it, so this first looks at the stream.
std::uint64_t MemoryStore::unused() noexcept {
  wait_for(driver_, stream_, std::chrono::nanoseconds(0));
  const std::uint64_t all = bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  std::uint64_t used = bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  const std::lock_guard lock(mutex_);
  for (const Waiting& one : waiting_) {
    if (!one.work.is_late) used -= std::min(used, one.bytes);
  }
  return all > used ? all - used : 0;
}

bool MemoryStore::keeps_unused() const noexcept {
  return bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) != bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

MemoryStore::Trim MemoryStore::begin_trim() noexcept {
  Trim trim;
  {
    const std::lock_guard lock(mutex_);
    trim.frees = frees_;
  }
  trim.work = record_work(true);
  return trim;
}

bool MemoryStore::end_trim(Trim& trim, bool is_over) noexcept {
  keep(trim.work.events);
  const std::lock_guard lock(mutex_);
  if (!is_over || trim.work.of == WorkBehind::Of::unknown || trim.frees != frees_) return false;
  const std::uint64_t before = bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  driver_.pool_trim(pool_, 0);
  return bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < before;
}

bool MemoryStore::trim(Clock::time_point until) noexcept {
  wait_for_frees(until);
  if (!keeps_unused()) return false;
  Trim trim = begin_trim();
  return end_trim(trim, wait(trim.work.events, until));
}

void MemoryStore::poll() noexcept {
  free_what_is_done();
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
  if (keeps_unused()) trim_ = begin_trim();
}

void MemoryStore::list_put_off(std::vector<PutOff>& list) const {
  PutOff late{tenant_->id, device_, tenant_->name, "device memory", 0, 0};
  {
    const std::lock_guard lock(mutex_);
    for (const Waiting& one : waiting_) {
      if (!one.work.is_late) continue;
      ++late.count;
      late.bytes += one.bytes;
    }
  }
  if (late.count != 0) list.push_back(std::move(late));
}

bool MemoryStore::end_within(std::chrono::milliseconds limit) noexcept {
  if (last_.empty()) {
    WorkBehind all = record_work(true);
    if (all.of == WorkBehind::Of::unknown) return false;
    last_.swap(all.events);
  }
  if (!wait(last_, Clock::now() + limit)) return false;
  std::deque<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    late_ = 0;
  }
  for (Waiting& one : waiting) {
    keep(one.work.events);
    free_now(one.address);
    if (one.freed) one.freed();
  }
  close();
  return true;
}

void MemoryStore::keep_nothing() noexcept {
  set_threshold(driver_, pool_, 0);
}

bool MemoryStores::add(const std::shared_ptr<MemoryStore>& store) {
  std::unique_lock lock(mutex_);
  const std::vector<CUdevice> others = others_;
  stores_.push_back(store);
  lock.unlock();  // the driver's calls may take long
  return std::all_of(others.begin(), others.end(),
                     [&](CUdevice one) { return store->open_to(one) == CUDA_SUCCESS; });
}

CUresult MemoryStores::open_to(CUdevice other, std::uint64_t generation) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (std::find(others_.begin(), others_.end(), other) == others_.end()) others_.push_back(other);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult status = CUDA_SUCCESS;
  for (const auto& store : of(generation)) {
    if (status == CUDA_SUCCESS) status = store->open_to(other);
  }
  return status;
}

std::vector<std::shared_ptr<MemoryStore>> MemoryStores::of(
    std::uint64_t generation) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<MemoryStore>> stores = stores_;
    std::erase_if(stores, [&](const auto& one) { return one->generation() != generation; });
    return stores;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

std::uint64_t MemoryStores::unused(std::uint64_t generation) const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& store : of(generation)) bytes += store->unused();
  return bytes;
}

bool MemoryStores::trim(std::chrono::milliseconds limit, std::uint64_t generation) noexcept {
  bool trimmed = false;
  const auto until = MemoryStore::Clock::now() + limit;
  for (const auto& store : of(generation)) trimmed = store->trim(until) || trimmed;
  return trimmed;
}

void MemoryStores::poll(std::uint64_t generation) noexcept {
  std::vector<std::shared_ptr<MemoryStore>> left;
  try {
    const std::lock_guard lock(mutex_);
    if (stores_.empty()) return;
    std::erase_if(stores_, [&](const auto& one) { return one->generation() < generation; });
    left.reserve(stores_.size());
    const auto first = std::stable_partition(stores_.begin(), stores_.end(),
                                             [](const auto& one) { return one.use_count() > 1; });
    std::move(first, stores_.end(), std::back_inserter(left));
    stores_.erase(first, stores_.end());
  } catch (const std::bad_alloc&) {
    return;  // the next poll does it
  }
  for (auto& store : left) {
    if (store->end_within(std::chrono::milliseconds(0))) continue;
    try {
      const std::lock_guard lock(mutex_);
      stores_.push_back(std::move(store));
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it stays until the exit
    }
  }
  for (const auto& store : of(generation)) store->poll();
}

void MemoryStores::list_put_off(std::vector<PutOff>& list) const {
  const std::lock_guard lock(mutex_);
  for (const auto& store : stores_) store->list_put_off(list);
}

void MemoryStores::end_all(std::chrono::milliseconds limit) noexcept {
  std::vector<std::shared_ptr<MemoryStore>> stores;
  {
    const std::lock_guard lock(mutex_);
    stores.swap(stores_);
  }
  for (const auto& store : stores) {
    if (store.use_count() > 1) {
      store->keep_nothing();  // memory that stays in the process still needs it
    } else {
      store->end_within(limit);
    }
  }
}

}  // namespace ctxbroker::detail
