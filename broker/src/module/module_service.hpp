// All modules of a broker. It unloads idle modules when device memory is short.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "context/device_hold.hpp"
#include "module/lease_modules.hpp"

namespace ctxbroker::detail {

// Any thread.
class ModuleService final : public MemoryRelief {
 public:
  // Returns the modules of this generation of the lease.
  std::shared_ptr<LeaseModules> at(const std::shared_ptr<Lease>& lease);

  // Unloads idle modules of a device.
  Unloaded unload_idle(int device) noexcept;
  bool relieve(int device) noexcept override { return unload_idle(device).modules != 0; }

  // Returns whether an earlier generation of the lease had the image loaded.
  bool was_loaded(const Lease& lease, const StoredImage& image);
  void record_loaded(const Lease& lease, const StoredImage& image);

 private:
  using Key = std::tuple<std::uint32_t, int, std::uint64_t>;  // tenant, device, hash

  std::mutex mutex_;
  std::vector<std::weak_ptr<LeaseModules>> all_;
  std::map<Key, std::uint64_t> loaded_;  // the generation it was loaded in
};

}  // namespace ctxbroker::detail
