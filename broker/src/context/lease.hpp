// A tenant's right to a context on one device, and the context behind it.
#pragma once

#include <atomic>
#include <memory>

#include "context/guard.hpp"
#include "context/tenant.hpp"
#include "ctxbroker/lease.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

struct LeaseRequest {
  int device = 0;
  LeaseKind asked = LeaseKind::automatic;  // by the host
  LeaseKind wish = LeaseKind::automatic;   // the plug-in's, when the host leaves it open
  const char* unmet_wish = nullptr;        // a kind that this version cannot grant: "green"
};

// The kind that answers a request, and why.
struct LeaseDecision {
  LeaseKind kind = LeaseKind::shared;
  std::string reason;
};
LeaseDecision decide(const LeaseRequest& request);

// Ends its context (or its retain on the primary) with its last owner.
class Lease {
 public:
  // Throws Error: no_device, out_of_memory, driver_call. `driver` outlives the lease.
  Lease(const Driver& driver, std::shared_ptr<const Tenant> tenant, const LeaseRequest& request,
        const LeaseDecision& decision);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const LeaseInfo& info() const noexcept { return info_; }
  const Driver& driver() const noexcept { return driver_; }
  const DriverTable& table() const noexcept { return driver_.table; }
  const Tenant& tenant() const noexcept { return *tenant_; }
  GuardTarget target() const noexcept { return {&driver_.table, info_.context, info_.generation}; }
  CallOwner owner() const noexcept { return {info_.device, tenant_->name}; }

  // Lost: the context is gone or the process's CUDA has ended; no handle of it is used again.
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  void mark_lost() noexcept { lost_.store(true, std::memory_order_relaxed); }
  // Marks the lease lost when `status` says so; returns `status`.
  CUresult note(CUresult status) noexcept;

 private:
  const Driver& driver_;
  std::shared_ptr<const Tenant> tenant_;
  LeaseInfo info_;
  std::atomic<bool> lost_{false};
};

}  // namespace ctxbroker::detail
