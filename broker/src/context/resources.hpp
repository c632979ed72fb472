// What belongs to a lease's context and ends with its owner: streams, events, memory, modules.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "context/lease.hpp"

namespace ctxbroker::detail {

// Says that the driver refused to end something, unless that is because the lease is lost; silent
// for DEINITIALIZED.
void report_failed_end(Lease& lease, CUresult status) noexcept;

// One driver handle with its lease, counted there. Ended inside a guard; not at all when it is gone
// already with the lease's context.
template <typename Handle, auto End, Home home, auto Count>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<Lease> lease, Handle handle) noexcept
      : lease_(std::move(lease)), handle_(handle) {
    (lease_->holdings().*Count).fetch_add(1, std::memory_order_relaxed);
  }
  Owned(Owned&& other) noexcept
      : lease_(std::move(other.lease_)), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      lease_ = std::move(other.lease_);
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }
  ~Owned() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Handle{}; }
  const std::shared_ptr<Lease>& lease() const noexcept { return lease_; }

  void reset() noexcept {
    if (handle_ != Handle{} && lease_ != nullptr) {
      if (end()) (lease_->holdings().*Count).fetch_sub(1, std::memory_order_relaxed);
    }
    handle_ = Handle{};
    lease_.reset();
  }

 private:
  // False: it stays where it is for good, and counted.
  bool end() noexcept {
    const auto where = lease_->end_target(home);
    if (!where) return !lease_->keeps_all();
    const DriverTable& table = lease_->table();
    report_failed_end(*lease_, guarded_end(*where, [&] { return (table.*End)(handle_); }));
    return true;
  }

  std::shared_ptr<Lease> lease_;
  Handle handle_{};
};

using Stream = Owned<CUstream, &DriverTable::stream_destroy, Home::context, &Holdings::streams>;
using Event = Owned<CUevent, &DriverTable::event_destroy, Home::memory, &Holdings::events>;
using DeviceMemory =
    Owned<CUdeviceptr, &DriverTable::mem_free, Home::memory, &Holdings::allocations>;
using Module = Owned<CUmodule, &DriverTable::module_unload, Home::memory, &Holdings::modules>;

// Page-locked host memory. The pages are the process's own and only registered with the lease's
// context: when somebody destroys that context behind the broker's back, what the broker writes
// there next still goes to memory of its own.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(std::shared_ptr<Lease> lease, std::uint64_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() { reset(); }

  void* get() const noexcept { return pages_; }

 private:
  void reset() noexcept;
  bool end_registration() noexcept;  // false: the driver may still know the pages

  std::shared_ptr<Lease> lease_;
  void* pages_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// All enter the lease themselves and throw Error: out_of_memory, context_lost, driver_call.
Stream make_stream(const std::shared_ptr<Lease>& lease);
Event make_timing_event(const std::shared_ptr<Lease>& lease);
DeviceMemory make_device_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);
PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);

}  // namespace ctxbroker::detail
