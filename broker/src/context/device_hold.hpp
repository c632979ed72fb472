// What the broker itself holds of one device: its primary context, the shield that keeps it from
// being destroyed, and the multiprocessors that green leases are cut from. Contexts of leases are
// made and ended here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "context/device_link.hpp"
#include "context/hung_work.hpp"
#include "context/lease_context.hpp"
#include "context/multiprocessor_split.hpp"
#include "context/primary_context.hpp"
#include "context/shield.hpp"

namespace ctxbroker::detail {

// Whoever can free device memory when an allocation fails.
class MemoryRelief {
 public:
  virtual ~MemoryRelief() = default;
  // On any thread, inside any guard. True when something was given up, so that the allocation that
  // failed is worth another try.
  virtual bool relieve(int device) noexcept = 0;
};

// One per broker and device. Any thread; the slow paths take a lock, the queries do not.
class DeviceHold {
 public:
  // All are borrowed and outlive this.
  DeviceHold(const Driver& driver, int ordinal, const TenantIdentity& host, ProcessFault& fault);
  ~DeviceHold();
  DeviceHold(const DeviceHold&) = delete;
  DeviceHold& operator=(const DeviceHold&) = delete;

  int ordinal() const noexcept { return link_.ordinal; }
  const Driver& driver() const noexcept { return link_.driver; }
  ProcessFault& fault() const noexcept { return link_.fault; }

  // Retains the primary and raises the shield, unless both stand. A device is not touched before.
  // Throws Error: driver_call, out_of_memory, context_lost.
  void use();
  bool in_use() const noexcept { return primary_.generation() != 0; }
  // Another part of the process has made the primary already.
  bool primary_is_active() const noexcept { return primary_.is_active(); }

  // After use.
  CUcontext primary() const noexcept { return primary_.context(); }
  Shield shield() const;
  bool offers_green() const;    // whether this driver and device give green contexts
  unsigned group_size() const;  // multiprocessors of the smallest partition; 0: no partitions

  // Which generation of the primary this is; see PrimaryContext.
  std::uint64_t primary_generation() const noexcept { return primary_.generation(); }
  bool primary_is_current(std::uint64_t generation) noexcept {
    return primary_.is_current(generation);
  }
  // Somebody destroyed that generation of the primary; the next use makes another.
  void lose_primary(std::uint64_t generation) noexcept { primary_.lose(generation); }
  void check_primary() noexcept { primary_.check(); }

  // How long an ending waits for work that may be hung. Before the device is used.
  void set_end_timeout(std::chrono::milliseconds limit);
  // The family of the primary context and its green ones.
  const std::shared_ptr<HungWork>& family() const noexcept { return family_; }
  // A family for a private context. Throws std::bad_alloc.
  std::shared_ptr<HungWork> make_family();
  // Those that there are, the primary's first. Throws std::bad_alloc.
  std::vector<std::shared_ptr<HungWork>> families() const;
  // Ends all that the broker holds of the device. False: that is put off, and this has to stay.
  bool shut_down();
  // Something in the primary has to outlive the broker: the primary stays until the process ends.
  void keep_primary() noexcept { keeps_primary_.store(true, std::memory_order_release); }

  // Who is asked when device memory is short; borrowed. Before the device is used.
  void set_relief(MemoryRelief& relief) noexcept { relief_ = &relief; }
  // True when something was given up: then the allocation that failed is worth another try.
  bool relieve() const noexcept { return relief_ != nullptr && relief_->relieve(ordinal()); }

  // Makes the context that `choice` (not automatic) asks for. After use. Throws Error: driver_call,
  // out_of_memory, lease_unavailable (not so many multiprocessors are free).
  LeaseContext make(const LeaseChoice& choice, CallOwner owner);
  CUresult make_sibling(const LeaseContext& of, CUgreenCtx* green, CUcontext* context) noexcept;
  // Ends what make made; its multiprocessors are free again in any case. What is in order and will
  // do for the next lease (`again`) is kept for it instead: a driver was seen that keeps 4 MiB of
  // every green context that is destroyed, until the primary ends.
  CUresult end(const LeaseContext& context, bool again) noexcept;

  // Makes one context ahead, for a lease of this kind (green over all multiprocessors, or private),
  // and says what device memory it took, as far as that can be told: when that is more than `most`,
  // it is ended at once. After use.
  CUresult make_spare(LeaseKind kind, std::uint64_t most, std::uint64_t* bytes) noexcept;
  std::size_t spares(LeaseKind kind) const;
  // The same as end for a context that is gone already: no driver call.
  void forget(const LeaseContext& context) noexcept;

 private:
  void end_all() noexcept;
  LeaseContext make_private(CallOwner owner);
  LeaseContext make_green(unsigned multiprocessors, CallOwner owner);
  LeaseContext green_over(const std::vector<std::size_t>& groups, CallOwner owner);
  std::uint64_t free_memory() const noexcept;
  std::uint64_t taken_since(std::uint64_t before) const noexcept;

  const DeviceLink link_;
  mutable std::mutex mutex_;
  PrimaryContext primary_;
  std::atomic<bool> keeps_primary_{false};
  bool shut_down_ = false;
  std::chrono::milliseconds end_timeout_{2000};
  std::shared_ptr<HungWork> family_;
  std::vector<std::weak_ptr<HungWork>> private_families_;
  MemoryRelief* relief_ = nullptr;
  std::optional<MultiprocessorSplit> split_;  // made at first use
  ShieldContext shield_;
  SpareContexts spares_;  // their multiprocessors are free; green ones stand on the primary
};

}  // namespace ctxbroker::detail
