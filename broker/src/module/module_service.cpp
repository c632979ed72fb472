// SPDX-License-Identifier: Apache-2.0
#include "module/module_service.hpp"

#include <algorithm>
#include <string>

#include "module/module_set.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

std::shared_ptr<LoadedCode> LeaseModules::code_for(const std::shared_ptr<const StoredImage>& image,
                                                   const JitOptions& options, bool known) {
  const std::lock_guard lock(mutex_);
  std::erase_if(codes_, [](const auto& code) { return code.expired(); });
  if (!image->has_memory()) {
    for (const auto& entry : codes_) {
      auto code = entry.lock();
      if (code != nullptr && code->is_of(*image, options)) return code;
    }
  }
  auto made = std::make_shared<LoadedCode>(lease_, image, options, known);
  codes_.push_back(made);
  if (!image->has_memory()) kept_.push_back(made);
  return made;
}

void LeaseModules::forget(const std::shared_ptr<LoadedCode>& code) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(kept_, code);  // the caller has it, too
}

void LeaseModules::add(ModuleSet& user) {
  const std::lock_guard lock(mutex_);
  users_.push_back(&user);
  if (user.is_real_time()) real_time_.fetch_add(1, std::memory_order_relaxed);
}

void LeaseModules::remove(ModuleSet& user) noexcept {
  std::vector<std::shared_ptr<LoadedCode>> lost;  // unloaded without the lock
  const std::lock_guard lock(mutex_);
  std::erase(users_, &user);
  if (user.is_real_time()) real_time_.fetch_sub(1, std::memory_order_relaxed);
  if (lease_->lost()) lost.swap(kept_);
}

// Inside the lease's context, with the gate closed and the lists locked.
bool LeaseModules::is_idle() noexcept {
  return std::none_of(users_.begin(), users_.end(), [&](const ModuleSet* user) {
    return user->stream() != nullptr &&
           lease_->table().stream_query(user->stream()) != CUDA_SUCCESS;
  });
}

Unloaded LeaseModules::unload_idle() noexcept {
  Unloaded unloaded;
  // A job in real time must not even wait for a look.
  const bool in_use =
      real_time_.load(std::memory_order_relaxed) != 0 || lease_->users().inside() != 0;
  if (lease_->holds_up_memory()) return unloaded;  // nothing would come free
  if (in_use || !gate_.try_close()) return unloaded;
  {
    const std::lock_guard lock(mutex_);
    const ContextGuard guard(lease_->target());
    // The modules of a lost lease are about to end with its activations.
    const bool can = guard.status() == CUDA_SUCCESS && !lease_->lost() && is_idle();
    for (const auto& entry : codes_) {
      const auto code = can ? entry.lock() : nullptr;
      if (code == nullptr || code->handle() == nullptr || code->image().has_memory()) continue;
      const bool is_pinned = std::any_of(users_.begin(), users_.end(), [&](const ModuleSet* user) {
        return user->needs_where_it_is(*code);
      });
      if (is_pinned) continue;
      const ScopedSpan span(SpanCategory::load, "unload idle module", nullptr, lease_->tenant().id,
                            code->image().size);
      for (ModuleSet* user : users_) user->forget_functions(*code);
      code->unload();
      ++unloaded.modules;
      unloaded.bytes += code->image().size;
    }
  }
  gate_.open();
  return unloaded;
}

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
      const std::uint64_t from = timeline_now();
      const Unloaded some = one->unload_idle();
      all.modules += some.modules;
      all.bytes += some.bytes;
      if (some.modules == 0) continue;
      constexpr std::size_t unload = realtime_call("unload module");
      if (RealtimeSession::anywhere() && holds_up(unload, one->lease()->kind())) {
        note_realtime_call(one->lease()->tenant(), unload, timeline_now() - from);
      }
      one->lease()->tenant().log(Severity::info, "module",
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
