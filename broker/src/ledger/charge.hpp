// SPDX-License-Identifier: Apache-2.0
// Memory that counts for a tenant as long as anything keeps it alive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ledger/limits.hpp"

namespace ctxbroker::detail {

class Charge;
using Charges = std::vector<std::shared_ptr<const Charge>>;

// Bytes that a limit counts until nobody shares the charge any more. Any thread.
class Charge {
 public:
  // Takes the bytes from the limit. Null: it has no room for them. Throws std::bad_alloc.
  static std::shared_ptr<const Charge> take(Limits& limits, Limit limit, std::uint64_t bytes) {
    auto charge = std::make_shared<Charge>();
    Budget& budget = limits.of(limit);
    if (!budget.take(bytes)) return nullptr;
    charge->budget_ = &budget;
    charge->limit_ = limit;
    charge->bytes_ = bytes;
    return charge;
  }
  // The charge for memory of which nobody can tell which of these it is: all count as long. Null:
  // there are none. Throws std::bad_alloc.
  static std::shared_ptr<const Charge> any_of(Charges charges) {
    if (charges.size() < 2) return charges.empty() ? nullptr : charges.front();
    auto charge = std::make_shared<Charge>();
    const Charge& largest = largest_of(charges);
    charge->limit_ = largest.limit_;
    charge->bytes_ = largest.bytes_;
    charge->parts_ = std::move(charges);
    return charge;
  }
  static const Charge& largest_of(const Charges& charges) noexcept {
    return **std::max_element(charges.begin(), charges.end(), [](const auto& one, const auto& two) {
      return one->bytes_ < two->bytes_;
    });
  }
  Charge() = default;
  ~Charge() {
    if (budget_ != nullptr) budget_->give(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  Limit limit() const noexcept { return limit_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // that the memory has, at most

 private:
  Budget* budget_ = nullptr;  // outlives it
  Limit limit_ = Limit::none;
  std::uint64_t bytes_ = 0;
  Charges parts_;
};

}  // namespace ctxbroker::detail
