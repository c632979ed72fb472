// Contexts of one device that are in order and nobody's: for the next lease of their shape.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "context/lease_context.hpp"

namespace ctxbroker::detail {

// Serialised by the owner. What is left in it at the end is the owner's to destroy.
class SpareContexts {
 public:
  void keep(LeaseContext context) { contexts_.push_back(std::move(context)); }
  // One of this kind over just these multiprocessors (none named: over all).
  std::optional<LeaseContext> take(LeaseKind kind, const std::vector<std::size_t>& groups);
  // Those that ended with the primary they stood on.
  void forget_green();
  // Of this kind, over all multiprocessors.
  std::size_t count(LeaseKind kind) const noexcept;
  const std::vector<LeaseContext>& all() const noexcept { return contexts_; }

 private:
  std::vector<LeaseContext> contexts_;
};

}  // namespace ctxbroker::detail
