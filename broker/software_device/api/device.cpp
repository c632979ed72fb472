// SPDX-License-Identifier: Apache-2.0
#include "api/device.hpp"

#include <utility>

#include "api/context_table.hpp"
#include "api/logs.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {

Device::Device(int its_ordinal, const Settings& its_settings)
    : ordinal(its_ordinal),
      settings(its_settings),
      executor({.on_finished =
                    [this] {
                      const auto& devices = Process::instance().devices;
                      for (const auto& other : devices)
                        if (other.get() != this) other->executor.wake();
                    },
                .on_end = [this](unsigned lane) { pools_[lane].reset(); },
                .on_misuse = [](const char* what) { log_error(what); }}) {}

exec::WorkerPool& Device::pool() {
  std::unique_ptr<exec::WorkerPool>& pool = pools_[executing_lane()];
  if (!pool) pool = std::make_unique<exec::WorkerPool>(settings.threads);
  return *pool;
}

CUcontext Device::primary_handle() const noexcept {
  return primary_context_handle(ordinal);
}

Context& Device::retain_primary() {
  std::lock_guard lock(primary_mutex_);
  return retain_locked();
}

Context& Device::retain_locked() {
  Context* context = primary();
  if (context == nullptr || !context->alive) {
    primary_lives_.push_back(
        std::make_unique<Context>(*this, ContextKind::primary, primary_handle(), primary_flags_));
    context = primary_lives_.back().get();
    primary_.store(context, std::memory_order_release);
  }
  ++primary_retains_;
  return *context;
}

void Device::end_primary() {
  if (Context* context = primary()) destroy_context(*context);
  primary_flags_ = 0;
  green_contexts_ = 0;
}

CUresult Device::release_primary() {
  std::lock_guard lock(primary_mutex_);
  return release_locked();
}

CUresult Device::release_locked() {
  if (primary_retains_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary_retains_ != 0) return CUDA_SUCCESS;
  if (green_contexts_ != 0) return CUDA_ERROR_NOT_PERMITTED;
  end_primary();
  return CUDA_SUCCESS;
}

CUresult Device::reset_primary() {
  std::lock_guard lock(primary_mutex_);
  if (green_contexts_ != 0) return CUDA_ERROR_NOT_PERMITTED;
  end_primary();
  return CUDA_SUCCESS;
}

void Device::lose_primary() {
  std::lock_guard lock(primary_mutex_);
  primary_retains_ -= green_contexts_;  // each has one, and ends with it
  end_primary();
}

Context& Device::create_green(const MultiprocessorSet& multiprocessors) {
  std::lock_guard lock(primary_mutex_);
  Context& parent = retain_locked();
  try {
    Context& made = Process::instance().contexts.create_green(parent, multiprocessors);
    ++green_contexts_;
    return made;
  } catch (...) {
    release_locked();
    throw;
  }
}

CUresult Device::destroy_green(Context& context) {
  std::lock_guard lock(primary_mutex_);
  if (!end_green_context(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  --green_contexts_;
  // With nothing left to release the primary stays, as with NVIDIA's driver.
  release_locked();
  return CUDA_SUCCESS;
}

Device::PrimaryState Device::primary_state() {
  std::lock_guard lock(primary_mutex_);
  Context* context = primary();
  return {primary_flags_, context != nullptr && context->alive};
}

void Device::set_primary_flags(unsigned flags) {
  std::lock_guard lock(primary_mutex_);
  primary_flags_ = flags;
  if (Context* context = primary()) context->flags = flags;
}

std::shared_ptr<MemoryPool> Device::default_pool() {
  std::lock_guard lock(pools_mutex_);
  if (default_pool_ == nullptr) {
    auto made = std::make_shared<MemoryPool>(*this, 0);
    Process::instance().pools.insert(made, [] {});
    default_pool_ = std::move(made);
  }
  return default_pool_;
}

std::shared_ptr<MemoryPool> Device::current_pool() {
  {
    std::lock_guard lock(pools_mutex_);
    if (current_pool_ != nullptr) return current_pool_;
  }
  return default_pool();
}

void Device::set_current_pool(const std::shared_ptr<MemoryPool>& pool) {
  std::lock_guard lock(pools_mutex_);
  current_pool_ = pool;
}

void Device::forget_pool(const MemoryPool& pool) {
  std::lock_guard lock(pools_mutex_);
  if (current_pool_.get() == &pool) current_pool_ = nullptr;
}

bool Device::reserve(std::size_t bytes) noexcept {
  std::size_t now = used;
  do {
    if (bytes > settings.memory - now) return false;
  } while (!used.compare_exchange_weak(now, now + bytes));
  return true;
}

bool is_device(CUdevice ordinal) {
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < Process::instance().devices.size();
}

Device& find_device(CUdevice ordinal) {
  check_that(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
  return *Process::instance().devices[static_cast<std::size_t>(ordinal)];
}

int compute_capability() noexcept {
  return Process::instance().devices.front()->settings.compute;
}

}  // namespace ctxbroker::software
