// SPDX-License-Identifier: Apache-2.0
// Chooses the device for a tenant's instances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "context/lease_table.hpp"
#include "context/tenant_identity.hpp"
#include "ctxbroker/placement.hpp"
#include "ctxbroker/plugin_description.hpp"
#include "plugin/instance_settings.hpp"

namespace ctxbroker::detail {

// A device that may be chosen.
struct DeviceOffer {
  int device = 0;
  std::uint64_t free_bytes = 0;  // all of its memory when it is not in use
  std::size_t leases = 0;        // in force on it
};

// Returns the device with most free memory. Among equals it takes the one with fewer leases, then
// the lower number. `offers` must not be empty.
int most_free(const std::vector<DeviceOffer>& offers) noexcept;

// [main] thread.
class Placer {
 public:
  // Borrows `leases`, which must outlive this object.
  explicit Placer(LeaseTable& leases) : leases_(leases) {}

  // Returns the device for an instance of a plug-in of `library`, which is `tenant`'s. Returns the
  // device of a fixed placement even when there is no such device. Touches no device that is not in
  // use.
  int choose(const TenantIdentity& tenant, const std::vector<PluginDescription>& library,
             const PlacementOrder& order);

 private:
  int home_of(TenantId tenant) const;
  std::vector<int> candidates(const std::vector<PluginDescription>& library) const;
  DeviceOffer offer(int device) const;

  LeaseTable& leases_;
  std::map<TenantId, int> homes_;  // where a rule put a tenant
  std::size_t turn_ = 0;           // of round-robin
};

}  // namespace ctxbroker::detail
