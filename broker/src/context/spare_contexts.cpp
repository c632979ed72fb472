#include "context/spare_contexts.hpp"

#include <algorithm>

namespace ctxbroker::detail {

std::optional<LeaseContext> SpareContexts::take(LeaseKind kind,
                                                const std::vector<std::size_t>& groups) {
  const auto found =
      std::find_if(contexts_.begin(), contexts_.end(), [&](const LeaseContext& spare) {
        return spare.granted.kind == kind && spare.groups == groups;
      });
  if (found == contexts_.end()) return std::nullopt;
  LeaseContext spare = std::move(*found);
  contexts_.erase(found);
  return spare;
}

void SpareContexts::forget_green() {
  std::erase_if(contexts_, [](const LeaseContext& spare) { return spare.green != nullptr; });
}

std::size_t SpareContexts::count(LeaseKind kind) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(contexts_.begin(), contexts_.end(), [&](const LeaseContext& spare) {
        return spare.granted.kind == kind && spare.groups.empty();
      }));
}

}  // namespace ctxbroker::detail
