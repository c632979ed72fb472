// Who a driver call, a strike or an allocation belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/tenant_id.hpp"
#include "observe/recorder.hpp"

namespace ctxbroker::detail {

class GatedTenant;  // the gate room's

class HungWork;

// Where work of a tenant hangs, or may wait for work that hangs. Any thread.
class HungFamilies {
 public:
  void add(int device, const std::shared_ptr<HungWork>& family) noexcept;
  bool anywhere() const noexcept { return on_other_device(-1) != nullptr; }
  // The tenant gets no lease on that device any more.
  void refuse(int device) noexcept;
  bool is_refused(int device) const noexcept;
  // A family of another device than this one that still hangs; null: there is none. The driver
  // frees memory of one device without a look at the others, so memory has to wait for it.
  std::shared_ptr<HungWork> on_other_device(int device) const noexcept;

 private:
  std::atomic<bool> any_{false};           // there was one
  std::atomic<std::uint64_t> refused_{0};  // a bit for each device
  mutable std::mutex mutex_;
  std::vector<std::pair<int, std::weak_ptr<HungWork>>> families_;
};

struct TenantIdentity {
  TenantIdentity(TenantId its_id, std::string its_name, const Recorder* its_recorder)
      : id(its_id), name(std::move(its_name)), recorder(its_recorder) {}

  TenantId id;
  std::string name;                                  // the plug-in library's name, or "host"
  const Recorder* recorder = nullptr;                // borrowed; outlives the tenant
  mutable std::atomic<std::uint64_t> strikes{0};     // all that this tenant ever got
  mutable std::atomic<GatedTenant*> gated{nullptr};  // what the gate knows of it, if it is in force
  mutable HungFamilies hung;

  // One line to the host about this tenant. `topic` is static text. Never throws.
  void log(Severity severity, const char* topic, std::string text) const noexcept;
};

// The next id that no tenant of this process ever had.
TenantId next_tenant_id() noexcept;

// The next number for the generation of a context, or of an activation: unique in the process,
// growing.
std::uint64_t next_generation() noexcept;

// Records one breach of the plug-in contract. `function` is where it happened ("process"),
// `counter` the instance's count, or null. Never throws.
void strike(const TenantIdentity& tenant, std::atomic<std::uint64_t>* counter, const char* function,
            const char* what) noexcept;

}  // namespace ctxbroker::detail
