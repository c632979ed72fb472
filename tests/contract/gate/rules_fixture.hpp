// SPDX-License-Identifier: Apache-2.0
// What the gate makes true for each tenant alone, and what it books for it. Calls inside a tenant's
// guard are its own; the driver's own functions tell what really came of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {

inline constexpr std::size_t mib = std::size_t{1} << 20;

class RulesTest : public RecordingBrokerTest {
 protected:
  TenantMetrics metrics_of(const Tenant& tenant) {
    for (TenantMetrics& metrics : broker.metrics().tenants)
      if (metrics.id == tenant.id()) return metrics;
    return {};
  }
  HeldThings held(const Tenant& tenant, const char* kind) { return metrics_of(tenant).held[kind]; }

  std::size_t free_memory(Tenant& asking) const {
    return asking.run(0, [&] { return raw.free_memory(); });
  }
  // With its context, where that is its own and the driver is one that can be told to; else the
  // context stands until its end.
  void lose_lease(Tenant& tenant) {
    const SoftwareControls controls(broker.driver().path);
    if (controls && tenant.lease().granted.kind == LeaseKind::private_own) {
      controls.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      const CUresult status = tenant.run(0, [] { return driver_call("cuCtxSynchronize"); });
      EXPECT_EQ(status, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      EXPECT_EQ(tenant.report_status(0, status), LeaseState::lost);
    } else {
      broker.force_loss(tenant.id(), 0, "a test");
    }
    tenant.run(0, [] {});
  }
  static Tenant open(Broker& broker, const char* name, LeaseKind kind, std::uint64_t budget = 0) {
    TenantOptions options{LeaseChoice(kind)};
    options.driver_memory_budget = budget;
    return broker.open_tenant(name, options);
  }

  const RawDriver raw{broker.driver().path};  // past the gate
};

}  // namespace ctxbroker
