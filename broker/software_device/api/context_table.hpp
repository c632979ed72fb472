// SPDX-License-Identifier: Apache-2.0
// The private and green contexts of the process, dead ones included.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <shared_mutex>

#include "api/context.hpp"
#include "api/handle_table.hpp"

namespace ctxbroker::software {

// Serials of context handles: first the devices' primary contexts, then the private ones.
inline constexpr std::uint64_t primary_handles = 64;

inline CUcontext primary_context_handle(int ordinal) noexcept {
  return make_handle<CUcontext>(HandleKind::context, static_cast<std::uint64_t>(ordinal) + 1);
}

class ContextTable {
 public:
  // `before`: how many contexts earlier lives of the driver made. Their handles are not used again.
  explicit ContextTable(std::uint64_t before) : before_(before) {}

  Context& create(Device& device, unsigned flags);
  Context& create_green(Context& primary, const MultiprocessorSet& multiprocessors);
  void for_each_green_of(const Context& primary, const std::function<void(Context&)>& visit) const;
  Context* find(CUcontext handle) const noexcept;  // null for what is none of theirs
  std::uint64_t made() const;                      // earlier lives' included
  void end_all();

 private:
  CUcontext next_handle() const;  // with mutex_ held

  mutable std::shared_mutex mutex_;
  const std::uint64_t before_;
  std::deque<std::unique_ptr<Context>> contexts_;
};

}  // namespace ctxbroker::software
