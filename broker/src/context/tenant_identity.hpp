// SPDX-License-Identifier: Apache-2.0
// The tenant that a driver call, a strike or an allocation belongs to.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "context/lease_counters.hpp"
#include "context/realtime_calls.hpp"
#include "ctxbroker/memory_source.hpp"
#include "ctxbroker/tenant_id.hpp"
#include "observe/lasting.hpp"
#include "observe/recorder.hpp"
#include "observe/repeats.hpp"

namespace ctxbroker::detail {

class GatedTenant;  // the gate room's

class HungWork;

// The context families in which a tenant's work hangs or waits for hung work. Any thread may use
// it.
class HungFamilies {
 public:
  void add(int device, const std::shared_ptr<HungWork>& family) noexcept;
  bool anywhere() const noexcept { return on_any_device() != nullptr; }
  // Refuses the tenant any further lease on that device.
  void refuse(int device) noexcept;
  bool is_refused(int device) const noexcept;
  // Returns a family of another device in which work hangs or something waits for it, or null.
  // Memory on this device has to wait for that, because the driver frees it without checking other
  // devices. The same holds for other families of this device, if `here` is its own one.
  std::shared_ptr<HungWork> on_other_device(int device,
                                            const HungWork* here = nullptr) const noexcept;
  // The same on any device, in any family.
  std::shared_ptr<HungWork> on_any_device() const noexcept { return on_other_device(-1); }

 private:
  std::atomic<bool> any_{false};           // there was one
  std::atomic<std::uint64_t> refused_{0};  // a bit for each device
  mutable std::mutex mutex_;
  std::vector<std::pair<int, std::weak_ptr<HungWork>>> families_;
};

struct TenantIdentity {
  TenantIdentity(TenantId its_id, std::string its_name,
                 std::shared_ptr<const Recorder> its_recorder)
      : id(its_id),
        name(std::move(its_name)),
        lasting_name(lasting(name)),
        recorder(std::move(its_recorder)) {}
  // Borrows the recorder, which must outlive the tenant.
  TenantIdentity(TenantId its_id, std::string its_name, const Recorder* its_recorder)
      : TenantIdentity(its_id, std::move(its_name),
                       std::shared_ptr<const Recorder>(std::shared_ptr<void>(), its_recorder)) {}

  TenantId id;
  std::string name;                                  // the plug-in library's name, or "host"
  const char* lasting_name;                          // the same, until the process ends
  std::shared_ptr<const Recorder> recorder;          // or null
  mutable std::atomic<std::uint64_t> strikes{0};     // all that this tenant ever got
  mutable Repeats repeats;                           // of strikes and of what is logged once
  mutable std::atomic<GatedTenant*> gated{nullptr};  // what the gate knows of it, if it is in force
  mutable HungFamilies hung;
  mutable Budget memory;  // that the host API holds for it; without a limit
  // The source of its memory; never `automatic`. It is set before the tenant's first lease.
  mutable std::atomic<MemorySource> memory_source{MemorySource::driver};
  // Bytes of pinned memory that its store takes ahead of need.
  mutable std::atomic<std::uint64_t> pinned_ahead{0};
  // Its code has asked for a handle for other processes, which memory of a pool does not have.
  mutable std::atomic<bool> shares_memory{false};
  mutable RealtimeCalls realtime;

  // Returns whether its pinned memory comes from a store of its own.
  bool uses_pinned_store() const noexcept {
    return memory_source.load(std::memory_order_relaxed) == MemorySource::pool;
  }
  // Returns whether its device memory does.
  bool uses_store() const noexcept {
    return uses_pinned_store() && !shares_memory.load(std::memory_order_relaxed);
  }

  // One line to the host about this tenant. `topic` is static text. Never throws.
  void log(Severity severity, const char* topic, std::string text) const noexcept;
  // The same for a text that `make` makes if somebody listens. Without memory the line is lost.
  template <std::invocable Make>
  void log(Severity severity, const char* topic, Make&& make) const noexcept {
    if (recorder == nullptr || !recorder->listening()) return;
    try {
      log(severity, topic, std::string(make()));
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see above
    }
  }
};

// Returns an id that no tenant of this process has had.
TenantId next_tenant_id() noexcept;

// Returns the next number for the generation of a context or for an activation. The numbers are
// unique in the process and grow.
std::uint64_t next_generation() noexcept;

// Records one breach of the plug-in contract. All are counted; of those that repeat, the log has
// the first three and then the 10th, 100th, ... `function` is where it happened ("process"),
// `counter` the instance's count, or null. Never throws.
void strike(const TenantIdentity& tenant, std::atomic<std::uint64_t>* counter, const char* function,
            const char* what) noexcept;

// After a call into the tenant's code: says once of each signal that the code has replaced the
// handler that names crashes, if there is one. Never throws.
void say_replaced_handlers(const TenantIdentity& tenant) noexcept;

}  // namespace ctxbroker::detail
