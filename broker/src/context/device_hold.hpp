// What the broker itself holds of one device: a retain on the primary context, the shield that
// keeps it from being destroyed, and the multiprocessors that green leases are cut from.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "context/multiprocessor_split.hpp"
#include "context/process_fault.hpp"
#include "context/tenant_identity.hpp"
#include "ctxbroker/lease.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

// One life of a context behind a lease.
struct LeaseContext {
  LeaseChoice granted;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;               // green only
  CUdevResourceDesc description = nullptr;  // green only: what siblings are made from
  std::vector<std::size_t> groups;          // of multiprocessors; a partition has some
};

// While a green context exists on a device the driver refuses to destroy its primary context.
struct Shield {
  bool up = false;
  std::string reason;  // why not, when it is not
};

// One per broker and device. Any thread; the slow paths take a lock, the queries do not.
class DeviceHold {
 public:
  // All are borrowed and outlive this.
  DeviceHold(const Driver& driver, int ordinal, const TenantIdentity& host, ProcessFault& fault);
  ~DeviceHold();
  DeviceHold(const DeviceHold&) = delete;
  DeviceHold& operator=(const DeviceHold&) = delete;

  int ordinal() const noexcept { return ordinal_; }
  const Driver& driver() const noexcept { return driver_; }
  ProcessFault& fault() const noexcept { return fault_; }

  // Retains the primary and raises the shield, unless both stand. A device is not touched before.
  // Throws Error: driver_call, out_of_memory, context_lost.
  void use();
  bool in_use() const noexcept { return primary_generation() != 0; }
  // Another part of the process has made the primary already.
  bool primary_is_active() const noexcept;

  // After use.
  CUcontext primary() const noexcept { return primary_; }
  Shield shield() const;
  bool offers_green() const;    // whether this driver and device give green contexts
  unsigned group_size() const;  // multiprocessors of the smallest partition; 0: no partitions
  unsigned free_multiprocessors() const;

  // Which life of the primary this is; 0: not in use, or lost. Equal numbers mean the same life.
  std::uint64_t primary_generation() const noexcept {
    return primary_generation_.load(std::memory_order_acquire);
  }
  // Somebody destroyed that life of the primary; the next use makes another.
  void lose_primary(std::uint64_t generation) noexcept;
  // Asks the driver about the device, not about a handle that may be dead: when the primary is
  // active no more, that life of it is lost.
  void check_primary() noexcept;

  // Work in the primary does not end: what would wait for it (the end of green contexts, freeing
  // memory) is left to the process's end.
  void mark_stuck() noexcept { stuck_.store(true, std::memory_order_release); }
  bool is_stuck() const noexcept { return stuck_.load(std::memory_order_acquire); }

  // Makes the context that `choice` (not automatic) asks for. After use. Throws Error: driver_call,
  // out_of_memory, lease_unavailable (not so many multiprocessors are free).
  LeaseContext make(const LeaseChoice& choice, CallOwner owner);
  CUresult make_sibling(const LeaseContext& of, CUgreenCtx* green, CUcontext* context) noexcept;
  // Ends what make made; its multiprocessors are free again in any case. What is in order and will
  // do for the next lease (`again`) is kept for it instead: a driver was seen that keeps 4 MiB of
  // every green context that is destroyed, until the primary ends.
  CUresult end(const LeaseContext& context, bool again) noexcept;

  // Makes one context ahead, for a lease of this kind (green over all multiprocessors, or private),
  // and says what device memory it took, as far as that can be told. After use.
  CUresult make_spare(LeaseKind kind, std::uint64_t* bytes) noexcept;
  std::size_t spares(LeaseKind kind) const;
  // The same for a context that is gone already: no driver call.
  void forget(const LeaseContext& context) noexcept;

 private:
  CUdevice handle() const noexcept { return driver_.handles[static_cast<std::size_t>(ordinal_)]; }
  void raise_shield() noexcept;
  void report_primary_of_others() const;
  void report_failed_end(const char* what, CUresult status) const noexcept;
  LeaseContext create_private(CallOwner owner);
  LeaseContext create_green(const std::vector<std::size_t>& groups, CallOwner owner);
  LeaseContext make_green(unsigned multiprocessors, CallOwner owner);
  std::optional<LeaseContext> take_spare(LeaseKind kind, const std::vector<std::size_t>& groups);
  CUresult destroy(const LeaseContext& context) noexcept;

  const Driver& driver_;
  const int ordinal_;
  const TenantIdentity& host_;
  ProcessFault& fault_;
  mutable std::mutex mutex_;
  CUcontext primary_ = nullptr;
  std::atomic<std::uint64_t> primary_generation_{0};
  std::atomic<bool> stuck_{false};
  int retains_ = 0;
  std::optional<MultiprocessorSplit> split_;  // made at first use
  CUgreenCtx shield_ = nullptr;
  // In order, and nobody's. Their multiprocessors are free. Green ones stand on the primary.
  std::vector<LeaseContext> spares_;
  std::string no_shield_;
};

}  // namespace ctxbroker::detail
