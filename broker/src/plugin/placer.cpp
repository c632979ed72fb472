// SPDX-License-Identifier: Apache-2.0
#include "plugin/placer.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr int nowhere = -1;
constexpr int default_device = 0;

// Returns the highest compute capability that a plug-in of the library needs, so that the others
// can follow it.
std::pair<int, int> needed_capability(const std::vector<PluginDescription>& library) {
  std::pair<int, int> needed{0, 0};
  for (const PluginDescription& plugin : library) {
    needed = std::max(needed, {plugin.min_compute_major, plugin.min_compute_minor});
  }
  return needed;
}

// A device that is not in use is not touched just to ask.
std::uint64_t free_bytes(const UsedDevice& used) {
  if (!used.in_use()) {
    return used.driver().devices[static_cast<std::size_t>(used.ordinal())].memory_bytes;
  }
  const DriverTable& driver = used.driver().table;
  std::size_t free = 0;
  std::size_t total = 0;
  const CUresult status = guarded({&driver, used.primary(), used.primary_generation()}, {},
                                  [&] { return driver.mem_get_info(&free, &total); });
  return status == CUDA_SUCCESS ? free : 0;  // one that does not even answer comes last
}

}  // namespace

int most_free(const std::vector<DeviceOffer>& offers) noexcept {
  const auto rank = [](const DeviceOffer& one) {
    return std::tuple(~one.free_bytes, one.leases, one.device);
  };
  return std::min_element(offers.begin(), offers.end(),
                          [&](const auto& a, const auto& b) { return rank(a) < rank(b); })
      ->device;
}

// Returns a device on which the tenant has a lease: the one that a placement chose for it, else the
// first.
int Placer::home_of(TenantId tenant) const {
  const auto home = homes_.find(tenant);
  if (home != homes_.end() && leases_.find(tenant, home->second) != nullptr) return home->second;
  for (const auto& lease : leases_.all()) {
    if (lease->tenant().id == tenant) return lease->device_ordinal();
  }
  return nowhere;
}

// The devices that are new enough; all, when none is: the error is then about the device.
std::vector<int> Placer::candidates(const std::vector<PluginDescription>& library) const {
  const std::pair needed = needed_capability(library);
  std::vector<int> fit;
  std::vector<int> all;
  for (const DeviceInfo& device : leases_.device(default_device).driver().devices) {
    all.push_back(device.ordinal);
    if (std::pair(device.compute_major, device.compute_minor) >= needed) {
      fit.push_back(device.ordinal);
    }
  }
  return fit.empty() ? all : fit;
}

DeviceOffer Placer::offer(int device) const {
  DeviceOffer offer{device, free_bytes(leases_.device(device)), 0};
  for (const auto& lease : leases_.all()) offer.leases += lease->device_ordinal() == device;
  return offer;
}

int Placer::choose(const TenantIdentity& tenant, const std::vector<PluginDescription>& library,
                   const PlacementOrder& order) {
  if (order.placement && order.placement->rule == PlacementRule::fixed) {
    return order.placement->device;
  }
  if (const int home = home_of(tenant.id); home != nowhere) return home;
  if (!order.placement) return default_device;
  const std::vector<int> choice = candidates(library);
  int device = nowhere;
  if (order.placement->rule == PlacementRule::round_robin) {
    device = choice[turn_++ % choice.size()];
  } else {
    std::vector<DeviceOffer> offers;
    offers.reserve(choice.size());
    for (const int one : choice) offers.push_back(offer(one));
    device = most_free(offers);
  }
  homes_[tenant.id] = device;
  tenant.log(Severity::info, "placement",
             "on device " + std::to_string(device) + ": " + order.by + " asked for " +
                 to_string(*order.placement));
  return device;
}

}  // namespace ctxbroker::detail
