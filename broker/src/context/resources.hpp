// SPDX-License-Identifier: Apache-2.0
// Resources that belong to a lease's context and end with their owner: streams, events, memory,
// modules.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "context/lease.hpp"

namespace ctxbroker::detail {

// Describes how a handle of one type is ended; see Ending.
template <typename Handle>
struct EndOf {
  CUresult (*DriverTable::*call)(Handle);
  Home home;
  bool may_wait;
  std::atomic<std::int64_t> LeaseCounters::*count;
  const char* what;
  // For what is in host memory, else null: called when it has ended, with the status of `call`.
  void (*after)(Handle handle, std::uint64_t bytes, CUresult status) = nullptr;
};

// One driver handle with its lease, counted there until it has ended.
template <typename Handle, const EndOf<Handle>& how>
class Owned {
 public:
  Owned() = default;
  // `bytes`: the size of the device memory or host memory that it takes. `store`: the store of the
  // memory; null: it is the driver's, or pages that are registered.
  Owned(std::shared_ptr<Lease> lease, Handle handle, std::uint64_t bytes = 0,
        std::shared_ptr<MemoryStore> store = nullptr) noexcept
      : lease_(std::move(lease)), store_(std::move(store)), handle_(handle), bytes_(bytes) {
    (lease_->counters().*how.count).fetch_add(1, std::memory_order_relaxed);
  }
  Owned(Owned&& other) noexcept
      : lease_(std::move(other.lease_)),
        store_(std::move(other.store_)),
        handle_(std::exchange(other.handle_, Handle{})),
        bytes_(other.bytes_) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      lease_ = std::move(other.lease_);
      store_ = std::move(other.store_);
      handle_ = std::exchange(other.handle_, Handle{});
      bytes_ = other.bytes_;
    }
    return *this;
  }
  ~Owned() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Handle{}; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // as the constructor got them
  const std::shared_ptr<Lease>& lease() const noexcept { return lease_; }
  const std::shared_ptr<MemoryStore>& store() const noexcept { return store_; }

  // Leaves it to somebody else, who counts it and ends it.
  void detach() noexcept {
    (lease_->counters().*how.count).fetch_sub(1, std::memory_order_relaxed);
    release();
  }
  // Leaves it to somebody else, who ends it and takes it out of the count.
  Handle release() noexcept {
    lease_.reset();
    store_.reset();
    return std::exchange(handle_, Handle{});
  }
  // Returns false if it has not ended yet: work that does not end may still use it.
  bool reset() noexcept {
    const std::shared_ptr<Lease> lease = std::move(lease_);
    const std::shared_ptr<MemoryStore> store = std::move(store_);
    Handle const handle = std::exchange(handle_, Handle{});
    if (handle == Handle{} || lease == nullptr) return true;
    try {
      const auto call = [lease, store, handle, bytes = bytes_] {
        if (store != nullptr) return store->give_back(address_of(handle), bytes);
        return (lease->table().*how.call)(handle);
      };
      const auto after = [lease, handle, bytes = bytes_,
                          is_stored = store != nullptr](CUresult status) {
        if (how.after != nullptr && !is_stored) how.after(handle, bytes, status);
        (lease->counters().*how.count).fetch_sub(1, std::memory_order_relaxed);
        lease->report_failed_end(how.what, status);
      };
      const auto ended = lease->give_back({.home = how.home,
                                           .what = how.what,
                                           .bytes = how.after == nullptr ? bytes_ : 0,
                                           .may_wait = how.may_wait,
                                           .call = call,
                                           .after = after,
                                           .is_stored = store != nullptr});
      return ended.has_value();
    } catch (const std::bad_alloc&) {  // it stays, and counted
      return false;
    }
  }

 private:
  static CUdeviceptr address_of(Handle handle) noexcept {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<CUdeviceptr>(handle);
    } else {
      return handle;
    }
  }

  std::shared_ptr<Lease> lease_;
  std::shared_ptr<MemoryStore> store_;
  Handle handle_{};
  std::uint64_t bytes_ = 0;
};

inline constexpr EndOf<CUstream> stream_end{&DriverTable::stream_destroy, Home::context, false,
                                            &LeaseCounters::streams, "stream"};
inline constexpr EndOf<CUevent> event_end{&DriverTable::event_destroy, Home::memory, false,
                                          &LeaseCounters::events, "event"};
inline constexpr EndOf<CUdeviceptr> memory_end{&DriverTable::mem_free, Home::memory, true,
                                               &LeaseCounters::allocations, "device memory"};
inline constexpr EndOf<CUmodule> module_end{&DriverTable::module_unload, Home::memory, true,
                                            &LeaseCounters::modules, "module"};
using Stream = Owned<CUstream, stream_end>;
using Event = Owned<CUevent, event_end>;
using DeviceMemory = Owned<CUdeviceptr, memory_end>;
using Module = Owned<CUmodule, module_end>;

// Gives the pages of pinned memory back to the system; see make_pinned_memory.
void unmap_pages(void* pages, std::uint64_t bytes, CUresult unregistered) noexcept;

inline constexpr EndOf<void*> pinned_end{
    &DriverTable::mem_host_unregister, Home::memory,         true,
    &LeaseCounters::allocations,       "pinned host memory", unmap_pages};
using PinnedMemory = Owned<void*, pinned_end>;

// The pages stay, and belong to somebody else.
inline void keep_pages(void*, std::uint64_t, CUresult) noexcept {}

inline constexpr EndOf<void*> registered_end{
    &DriverTable::mem_host_unregister, Home::memory, true, &LeaseCounters::allocations,
    "registered host memory",          keep_pages};
using RegisteredMemory = Owned<void*, registered_end>;

// Told when the driver does not register memory, because another registration covers a part of it.
// `fresh`: the pages have just come from the system, so the memory of that registration is gone.
using CoveredObserver = void (*)(const void* pages, std::uint64_t bytes, bool fresh) noexcept;
void observe_covered_memory(CoveredObserver observer) noexcept;

// All enter the lease themselves and throw Error: out_of_memory, context_lost, driver_call. Streams
// and events also lease_unavailable: the driver makes none while it loads a module, and that waits
// for work.
Stream create_stream(const std::shared_ptr<Lease>& lease);
Event make_event(const std::shared_ptr<Lease>& lease);  // cheap, and without a time
Event make_timing_event(const std::shared_ptr<Lease>& lease);
DeviceMemory make_device_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);
// Takes device memory inside the lease: from the lease's store, which it returns in `store`, or
// from the driver. If device memory is short, asks others to free some and tries again.
CUresult take_device_memory(Lease& lease, std::uint64_t bytes, CUdeviceptr* address,
                            std::shared_ptr<MemoryStore>* store) noexcept;
// Page-locked host memory with any content, from the lease's store. Without a store, the pages are
// the process's own and only registered with the lease's context. In both cases, what the broker
// writes there still goes to memory of its own when somebody destroys the context behind the
// broker's back. Pages that somebody's forgotten registration covers are passed over.
PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);
// The same for pages of somebody else, who keeps them for longer. They may be shared memory.
RegisteredMemory register_memory(const std::shared_ptr<Lease>& lease, void* pages,
                                 std::uint64_t bytes);

}  // namespace ctxbroker::detail
