// SPDX-License-Identifier: Apache-2.0
#include "gate/code_claims.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

namespace ctxbroker::detail {
namespace {

struct Registry {
  std::mutex lock;  // of the pointer, and never held for longer
  std::shared_ptr<const AllClaims> all = std::make_shared<const AllClaims>();
  std::atomic<bool> had_any{false};
};
Registry& registry() {
  static auto* const one = new Registry;  // never ended: asked until the process ends
  return *one;
}

}  // namespace

void add_claims(const std::shared_ptr<CodeClaims>& claims) {
  Registry& process = registry();
  const std::lock_guard lock(process.lock);
  auto all = std::make_shared<AllClaims>(*process.all);
  all->push_back(claims);
  process.all = std::move(all);
  process.had_any.store(true, std::memory_order_release);
}

void remove_claims(const CodeClaims& claims) noexcept {
  Registry& process = registry();
  const std::lock_guard lock(process.lock);
  try {
    auto left = std::make_shared<AllClaims>(*process.all);
    std::erase_if(*left, [&](const auto& one) { return one.get() == &claims; });
    process.all = std::move(left);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): closed claims say nothing
  }
}

std::shared_ptr<const AllClaims> open_claims() noexcept {
  Registry& process = registry();
  const std::lock_guard lock(process.lock);
  return process.all;
}

bool had_claims() noexcept {
  return registry().had_any.load(std::memory_order_acquire);
}

}  // namespace ctxbroker::detail
