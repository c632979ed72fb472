// What belongs to a lease's context and ends with its owner: streams, events, memory, modules.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "context/lease.hpp"

namespace ctxbroker::detail {

// Says that the driver refused to end something; silent for DEINITIALIZED.
void report_failed_end(const Lease& lease, CUresult status) noexcept;

// One driver handle with its lease. Ended inside a guard; not at all once the lease is lost, when
// the handle is dead already.
template <typename Handle, auto End>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<Lease> lease, Handle handle) : lease_(std::move(lease)), handle_(handle) {}
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

  void reset() noexcept {
    if (handle_ != Handle{} && lease_ != nullptr && !lease_->lost()) {
      const DriverTable& table = lease_->table();
      report_failed_end(*lease_,
                        guarded(lease_->target(), {}, [&] { return (table.*End)(handle_); }));
    }
    handle_ = Handle{};
    lease_.reset();
  }

 private:
  std::shared_ptr<Lease> lease_;
  Handle handle_{};
};

using Stream = Owned<CUstream, &DriverTable::stream_destroy>;
using Event = Owned<CUevent, &DriverTable::event_destroy>;
using DeviceMemory = Owned<CUdeviceptr, &DriverTable::mem_free>;
using PinnedMemory = Owned<void*, &DriverTable::mem_free_host>;
using Module = Owned<CUmodule, &DriverTable::module_unload>;

// All enter the lease themselves and throw Error: out_of_memory, context_lost, driver_call.
Stream make_stream(const std::shared_ptr<Lease>& lease);
Event make_timing_event(const std::shared_ptr<Lease>& lease);
DeviceMemory make_device_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);
PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);

}  // namespace ctxbroker::detail
