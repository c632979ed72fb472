// SPDX-License-Identifier: Apache-2.0
// Keeps account of threads that have a lease's context current although no guard is around them,
// because a tenant's code made it current through the gate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Counts for one lease how often its contexts are on stacks of such threads. Negative when the
// contexts have ended; then no further thread can borrow them.
using Borrowers = std::atomic<int>;

// Keeps a lease's contexts alive while a driver call makes one of them current. If the call fails,
// nothing is borrowed.
class BorrowClaim {
 public:
  BorrowClaim() noexcept = default;
  // Claims the lease, unless its contexts have ended: see `holds`.
  explicit BorrowClaim(std::shared_ptr<Borrowers> lease) noexcept;
  ~BorrowClaim();
  BorrowClaim(BorrowClaim&& other) noexcept : lease_(std::exchange(other.lease_, nullptr)) {}
  BorrowClaim& operator=(BorrowClaim&& other) noexcept {
    std::swap(lease_, other.lease_);
    return *this;
  }

  bool holds() const noexcept { return lease_ != nullptr; }
  std::shared_ptr<Borrowers> release() noexcept { return std::exchange(lease_, nullptr); }

 private:
  std::shared_ptr<Borrowers> lease_;
};

// The driver has pushed a context onto the calling thread's stack. It is borrowed until it leaves
// the stack or the thread ends. Without a claim, the context is no lease's, and nothing happens.
void borrow_pushed(CUcontext context, BorrowClaim claim) noexcept;
// The driver has put a context in the place of `before`, the top of the calling thread's stack.
// Null for `context`: `before` was popped.
void borrow_instead(CUcontext before, CUcontext context, BorrowClaim claim) noexcept;
// The driver has popped a context from the calling thread's stack.
void give_back_popped(CUcontext context) noexcept;

// Returns whether the calling thread borrows a lease's context.
bool borrows_on_this_thread() noexcept;

// A tenant's call that has made a lease's context current. The same call means the same context as
// long as nothing has changed since.
struct BorrowingCall {
  const void* tenant = nullptr;
  std::uint64_t opening = 0;  // of the tenant
  CUcontext asked = nullptr;
  std::uint64_t changes = 0;  // ownership_changes, before the call
  friend bool operator==(const BorrowingCall&, const BorrowingCall&) = default;
};
// Notes what made the context current, if that is the one that the calling thread borrowed last.
void note_borrowing(CUcontext context, const BorrowingCall& call) noexcept;
// Returns the context that the calling thread borrowed last, if this call made it current. Null:
// another one did.
CUcontext borrowed_by(const BorrowingCall& call) noexcept;

// Lets no thread borrow the contexts from now on. Returns false when a thread borrows one now.
bool close_to_borrowers(Borrowers& borrowers) noexcept;
void reopen_to_borrowers(Borrowers& borrowers) noexcept;  // after close_to_borrowers

}  // namespace ctxbroker::detail
