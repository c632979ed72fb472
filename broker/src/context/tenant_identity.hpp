// Who a driver call, a strike or an allocation belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "ctxbroker/tenant_id.hpp"
#include "observe/recorder.hpp"

namespace ctxbroker::detail {

class GatedTenant;  // the gate room's

// On which devices work of a tenant does not end. Any thread.
class EndlessWork {
 public:
  void note(int device) noexcept;
  bool anywhere() const noexcept { return device_.load(std::memory_order_acquire) != none; }
  // On another device than this one.
  bool beside(int device) const noexcept {
    const int where = device_.load(std::memory_order_acquire);
    return where != none && where != device;
  }

 private:
  enum : int { none = -1, several = -2 };
  std::atomic<int> device_{none};
};

struct TenantIdentity {
  TenantIdentity(TenantId its_id, std::string its_name, const Recorder* its_recorder)
      : id(its_id), name(std::move(its_name)), recorder(its_recorder) {}

  TenantId id;
  std::string name;                                  // the plug-in library's name, or "host"
  const Recorder* recorder = nullptr;                // borrowed; outlives the tenant
  mutable std::atomic<std::uint64_t> strikes{0};     // all that this tenant ever got
  mutable std::atomic<GatedTenant*> gated{nullptr};  // what the gate knows of it, if it is in force
  // Called with it when an outermost guard around its code has ended; null: nobody wants to know.
  mutable std::atomic<void (*)(GatedTenant*) noexcept> guard_ended{nullptr};
  mutable EndlessWork endless;  // for good: nobody looks whether it ends after all

  // One line to the host about this tenant. `topic` is static text. Never throws.
  void say(Severity severity, const char* topic, std::string text) const noexcept;
};

// The next id that no tenant of this process ever had.
TenantId next_tenant_id() noexcept;

// The next number for the life of a context, or of an activation: unique in the process, growing.
std::uint64_t next_generation() noexcept;

// Records one breach of the plug-in contract. `function` is where it happened ("process"),
// `counter` the instance's count, or null. Never throws.
void strike(const TenantIdentity& tenant, std::atomic<std::uint64_t>* counter, const char* function,
            const char* what) noexcept;

}  // namespace ctxbroker::detail
