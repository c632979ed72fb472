// SPDX-License-Identifier: Apache-2.0
#include "context/borrowers.hpp"

#include <algorithm>
#include <new>
#include <vector>

#include "process/thread_end.hpp"

namespace ctxbroker::detail {
namespace {

struct Borrowed {
  CUcontext context = nullptr;
  std::shared_ptr<Borrowers> lease;
  BorrowingCall call{};
};

// The borrowed contexts on a thread's stack, the topmost one last. Others may lie between them.
using BorrowedStack = std::vector<Borrowed>;

constinit thread_local BorrowedStack* stack = nullptr;

void give_back(const Borrowed& one) noexcept {
  one.lease->fetch_sub(1, std::memory_order_release);
}

void end_thread(void* value) noexcept {
  auto* const ended = static_cast<BorrowedStack*>(value);
  stack = nullptr;
  for (const Borrowed& one : *ended) give_back(one);
  delete ended;
}

BorrowedStack& own_stack() {
  if (stack == nullptr) {
    static const ThreadEnd end(&end_thread);
    auto made = std::make_unique<BorrowedStack>();
    if (!end.watch(made.get())) throw std::bad_alloc();
    stack = made.release();
  }
  return *stack;
}

}  // namespace

BorrowClaim::BorrowClaim(std::shared_ptr<Borrowers> lease) noexcept : lease_(std::move(lease)) {
  if (lease_ == nullptr) return;
  int count = lease_->load(std::memory_order_relaxed);
  do {
    if (count < 0) {
      lease_ = nullptr;
      return;
    }
  } while (!lease_->compare_exchange_weak(count, count + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed));
}

BorrowClaim::~BorrowClaim() {
  if (lease_ != nullptr) lease_->fetch_sub(1, std::memory_order_release);
}

void borrow_pushed(CUcontext context, BorrowClaim claim) noexcept {
  if (!claim.holds()) return;
  std::shared_ptr<Borrowers> lease = claim.release();
  try {
    own_stack().push_back({context, lease, {}});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it counts as borrowed for
  }                                  // good, because nobody will see it leave the stack
}

void borrow_instead(CUcontext before, CUcontext context, BorrowClaim claim) noexcept {
  if (borrows_on_this_thread() && stack->back().context == before) {
    give_back(stack->back());
    stack->pop_back();
  }
  borrow_pushed(context, std::move(claim));
}

void give_back_popped(CUcontext context) noexcept {
  if (!borrows_on_this_thread()) return;
  const auto found = std::find_if(stack->rbegin(), stack->rend(),
                                  [&](const Borrowed& one) { return one.context == context; });
  if (found == stack->rend()) return;
  // Those above it have left the stack before, unseen.
  const auto first = std::prev(found.base());
  std::for_each(first, stack->end(), give_back);
  stack->erase(first, stack->end());
}

bool borrows_on_this_thread() noexcept {
  return stack != nullptr && !stack->empty();
}

void note_borrowing(CUcontext context, const BorrowingCall& call) noexcept {
  if (borrows_on_this_thread() && stack->back().context == context) stack->back().call = call;
}

CUcontext borrowed_by(const BorrowingCall& call) noexcept {
  return borrows_on_this_thread() && stack->back().call == call ? stack->back().context : nullptr;
}

bool close_to_borrowers(Borrowers& borrowers) noexcept {
  int none = 0;
  return borrowers.compare_exchange_strong(none, -1, std::memory_order_acq_rel);
}

void reopen_to_borrowers(Borrowers& borrowers) noexcept {
  borrowers.store(0, std::memory_order_release);
}

}  // namespace ctxbroker::detail
