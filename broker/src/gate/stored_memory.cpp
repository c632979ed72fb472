// SPDX-License-Identifier: Apache-2.0
#include "gate/stored_memory.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "context/hung_work.hpp"
#include "context/open_captures.hpp"
#include "context/timed_wait.hpp"
#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = MemoryStore::Clock;

// Events that are recorded in one stream after another.
class StreamMarks {
 public:
  explicit StreamMarks(const Lease& lease) noexcept : lease_(lease), driver_(lease.table()) {}
  ~StreamMarks() {
    for (CUevent const event : events_) driver_.event_destroy(event);
  }
  StreamMarks(const StreamMarks&) = delete;
  StreamMarks& operator=(const StreamMarks&) = delete;

  // Makes none while the driver may load a module: it makes no event then, and a load waits for
  // work. Throws std::bad_alloc.
  void make(std::size_t count) {
    if (HungWork::is_anything_in_the_making()) return;
    events_.reserve(count);
    call_in(driver_, lease_.memory_context(), [&] {
      CUevent event = nullptr;
      while (events_.size() < count &&
             driver_.event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        events_.push_back(event);
      }
      return CUDA_SUCCESS;
    });
  }
  // Returns whether no event is left, perhaps because too few were made.
  bool is_full() const noexcept { return used_ == events_.size(); }
  void record(CUstream stream) noexcept {
    if (!is_full() && driver_.event_record(events_[used_], stream) == CUDA_SUCCESS) ++used_;
  }
  // Returns false if not all recorded events have happened by then.
  bool wait(Clock::time_point until) const noexcept {
    for (std::size_t index = 0; index < used_; ++index) {
      const auto left =
          std::max<Clock::duration>(until - Clock::now(), std::chrono::nanoseconds(1));
      if (wait_for_event(driver_, events_[index], left) == CUDA_ERROR_TIMEOUT) return false;
    }
    return true;
  }

 private:
  const Lease& lease_;
  const DriverTable& driver_;
  std::vector<CUevent> events_;
  std::size_t used_ = 0;
};

// Waits for the work that the tenant's own streams have now. It is for frees behind recorded work
// that includes neighbours' work, as in shared leases. Returns false if the streams' work has not
// ended by then.
bool wait_for_streams(Lease& lease, Clock::time_point until) noexcept {
  const DriverTable& driver = lease.table();
  try {
    std::size_t busy = 0;
    ledger().any_stream_in(lease.generation(), [&](CUstream stream) {
      busy += is_busy(driver, stream) ? 1 : 0;
      return false;
    });
    StreamMarks marks(lease);
    marks.make(busy);
    if (busy != 0) {
      ledger().any_stream_in(lease.generation(), [&](CUstream stream) {
        if (is_busy(driver, stream)) marks.record(stream);
        return marks.is_full();
      });
    }
    if (!marks.wait(until)) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    return lease.kind() == LeaseKind::shared || !lease.is_default_stream_busy() ||
           lease.wait_for_default_streams(std::max(left, std::chrono::milliseconds(1))) !=
               CUDA_ERROR_TIMEOUT;
  } catch (const std::bad_alloc&) {
    return true;  // the memory is not used again before the recorded work has ended, in any case
  }
}

// Waits for the work that the tenant's own streams have on other devices, which can use the
// tenant's pinned memory, too. A store knows the work of its own device only.
void wait_on_other_devices(GatedTenant& tenant, int device, Clock::time_point until) noexcept {
  for (int other = 0; tenant.has_device(other); ++other) {
    TranslatedLease translated;
    if (other == device || !tenant.has_lease(other) ||
        tenant.lease(other, &translated) != CUDA_SUCCESS) {
      continue;
    }
    const std::shared_ptr<Lease> lease = tenant.lease_meant(translated.target.context);
    if (lease != nullptr && !lease->lost()) wait_for_streams(*lease, until);
  }
}

}  // namespace

std::shared_ptr<MemoryStore> store_here(GatedTenant& tenant, Kind kind) noexcept {
  if (!tenant.identity().uses_pinned_store() || OpenCaptures::all().captures_here()) return nullptr;
  CUcontext const here = current_context();
  const std::shared_ptr<Lease> lease = tenant.lease_meant(here);
  if (lease == nullptr || !lease->has_context(here)) return nullptr;
  auto store = kind == Kind::memory ? lease->memory_store() : lease->pinned_store();
  if (store != nullptr) store->free_what_is_done();  // so that it counts in no budget any more
  return store;
}

CUresult report_loss(GatedTenant& tenant, CUresult status) noexcept {
  if (status != CUDA_ERROR_CONTEXT_IS_DESTROYED) return status;
  if (const auto lease = tenant.lease_meant(current_context())) lease->report_status(status);
  return status;
}

CUresult free_stored(GatedTenant& tenant, const Holding& held) noexcept {
  const TimedWait wait(tenant, held.kind == Kind::memory ? "cuMemFree" : "cuMemFreeHost");
  MemoryStore& store = *held.store;
  const auto until = store.latest();
  if (held.kind == Kind::host_memory) wait_on_other_devices(tenant, store.device(), until);
  WorkBehind work = store.record_work(tenant.has_own_green());
  if (work.of == WorkBehind::Of::lease) {
    store.wait(work, until);
  } else if (const std::shared_ptr<Lease> lease = tenant.lease_meant(store.primary())) {
    if (!lease->lost() && !store.is_held_up()) work.is_late = !wait_for_streams(*lease, until);
  }
  CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    Holding counted = held;
    counted.store.reset();
    status = store.give_back(held.handle, size_of(held), std::move(work),
                             [counted] { stop_counting(counted); });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is held as before
  }
  if (status != CUDA_SUCCESS) hold_again(held);
  return status;
}

CUresult free_left(const Holding& held) noexcept {
  return held.store->give_back(held.handle, size_of(held), held.store->record_work(true));
}

std::optional<Holding> find_stored(CUdeviceptr address, Kind kind) noexcept {
  if (!any_gated_tenant()) return std::nullopt;
  auto held = ledger().find_memory_at(address, kind);
  if (held && held->store == nullptr) held.reset();
  return held;
}

std::optional<Holding> find_stored(CUdeviceptr address) noexcept {
  auto held = find_stored(address, Kind::memory);
  return held ? held : find_stored(address, Kind::host_memory);
}

void leave_store(GatedTenant& tenant, const char* function) noexcept {
  tenant.identity().shares_memory.store(true, std::memory_order_relaxed);
  tenant.log_once(
      function,
      "memory of the tenant's own pool has no handle for other processes. From now on "
      "the tenant's device memory comes from the driver, so that what it allocates next "
      "can be shared; \"memory\": \"driver\" in the policy does that from the start",
      Severity::warning);
}

}  // namespace ctxbroker::detail
