#include "module/module_service.hpp"

#include <string>

namespace ctxbroker::detail {

std::shared_ptr<LeaseModules> ModuleService::at(const std::shared_ptr<Lease>& lease) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& one) { return one.expired(); });
  for (const auto& entry : all_) {
    auto one = entry.lock();
    if (one != nullptr && one->lease() == lease) return one;
  }
  auto made = std::make_shared<LeaseModules>(lease);
  all_.push_back(made);
  return made;
}

Unloaded ModuleService::unload_idle(int device) noexcept {
  Unloaded all;
  try {
    std::vector<std::shared_ptr<LeaseModules>> here;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& entry : all_) {
        auto one = entry.lock();
        if (one != nullptr && one->lease()->device_ordinal() == device) here.push_back(one);
      }
    }
    for (const auto& one : here) {
      const Unloaded some = one->unload_idle();
      all.modules += some.modules;
      all.bytes += some.bytes;
      if (some.modules == 0) continue;
      const TenantIdentity& tenant = one->lease()->tenant();
      tenant.recorder->record(Severity::info, tenant.id, tenant.name, "module",
                              std::to_string(some.modules) + " idle module(s) with images of " +
                                  std::to_string(some.bytes) +
                                  " bytes are unloaded; they come back when they are used");
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of host memory: what is done is done
  }
  return all;
}

bool ModuleService::was_loaded(const Lease& lease, const StoredImage& image) {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find({lease.tenant().id.value, lease.device_ordinal(), image.hash});
  return found != loaded_.end() && found->second != lease.generation();
}

void ModuleService::record_loaded(const Lease& lease, const StoredImage& image) {
  const std::lock_guard lock(mutex_);
  loaded_[{lease.tenant().id.value, lease.device_ordinal(), image.hash}] = lease.generation();
}

}  // namespace ctxbroker::detail
