// SPDX-License-Identifier: Apache-2.0
// Handles that are never reused: a stale one is recognised for what it is.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/status.hpp"

namespace ctxbroker::software {

// A number that no other object of this process has, not even of an earlier life of the driver.
std::uint64_t next_id() noexcept;

// The kind is part of the handle's value, so that one of another kind is recognised too.
enum class HandleKind : std::uint8_t {
  context = 0x51,
  stream,
  event,
  module,
  function,
  descriptor,
  library,
  kernel,
  pool,
  allocation,
  array,
  graph,
  graph_node,
  graph_exec,
  user_object,
  link,
};

// The handle of the `serial`-th object of its kind. Looks like an address, and is none.
template <class Handle>
Handle make_handle(HandleKind kind, std::uint64_t serial) noexcept {
  std::uint64_t bits = (static_cast<std::uint64_t>(kind) << 40) + (serial << 4);
  return reinterpret_cast<Handle>(bits);  // NOLINT(performance-no-int-to-ptr): never dereferenced
}

// The kind that a handle claims to be of.
template <class Handle>
HandleKind kind_of(Handle handle) noexcept {
  return static_cast<HandleKind>(reinterpret_cast<std::uintptr_t>(handle) >> 40);
}

// Live objects by handle. Thread-safe.
template <class T, class Handle, HandleKind kind>
class HandleTable {
 public:
  // `admit` runs under the table's lock and may throw: then nothing is entered.
  template <class Admit>
  Handle insert(const std::shared_ptr<T>& object, Admit admit) {
    std::unique_lock lock(mutex_);
    admit();
    Handle handle = make_handle<Handle>(kind, next_id());
    object->handle = handle;
    objects_.emplace(handle, object);
    return handle;
  }

  // Throws Failure CUDA_ERROR_INVALID_HANDLE for anything that is not a live handle.
  std::shared_ptr<T> find(Handle handle) const {
    std::shared_lock lock(mutex_);
    auto found = objects_.find(handle);
    check_that(found != objects_.end(), CUDA_ERROR_INVALID_HANDLE);
    return found->second;
  }

  // Removes the object and returns it; the same error.
  std::shared_ptr<T> take(Handle handle) {
    std::unique_lock lock(mutex_);
    auto found = objects_.find(handle);
    check_that(found != objects_.end(), CUDA_ERROR_INVALID_HANDLE);
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Removes and returns all for which `belongs` is true.
  template <class Belongs>
  std::vector<std::shared_ptr<T>> take_all(Belongs belongs) {
    std::unique_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> taken;
    for (auto entry = objects_.begin(); entry != objects_.end();) {
      if (belongs(*entry->second)) {
        taken.push_back(std::move(entry->second));
        entry = objects_.erase(entry);
      } else {
        ++entry;
      }
    }
    return taken;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<T>> objects_;
};

}  // namespace ctxbroker::software
