// SPDX-License-Identifier: Apache-2.0
#include "context/lease_users.hpp"

#include <chrono>
#include <new>
#include <thread>

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t nobody = ~std::uint64_t{0};
constexpr std::chrono::microseconds nap{100};

}  // namespace

LeaseUsers::~LeaseUsers() {
  for (const auto& block : blocks_) delete block.load(std::memory_order_relaxed);
}

LeaseSlot* LeaseUsers::own_slot() const noexcept {
  const std::uint64_t me = thread_number();
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) {
    LeaseSlot& slot = at(index);
    if (slot.owner.load(std::memory_order_relaxed) == me) return &slot;
  }
  return nullptr;
}

LeaseSlot* LeaseUsers::free_slot() const noexcept {
  ThreadState& thread = thread_state;
  const std::size_t count = slot_count();
  for (std::size_t index = 0; index < count; ++index) {
    if (!acquire(at(index), thread_number())) continue;
    // Its own was taken, so that threads which are inside at once find different ones the next
    // time.
    if (thread.slot_hint < count) thread.slot_hint = static_cast<std::uint32_t>(index);
    return &at(index);
  }
  return nullptr;
}

CUresult LeaseUsers::enter(LeaseSlot** slot, bool may_wait) noexcept {
  if (LeaseSlot* const own = own_slot()) {
    ++own->again;
    *slot = own;
    return CUDA_SUCCESS;
  }
  const Time since = std::chrono::steady_clock::now();
  for (;;) {
    if ((*slot = free_slot()) != nullptr) return CUDA_SUCCESS;
    const CUresult status = enter_slowly(slot, may_wait, since);
    if (status != CUDA_ERROR_NOT_READY) return status;
    if (room_.limit > std::chrono::milliseconds::zero() &&
        std::chrono::steady_clock::now() - since >= room_.limit) {
      if (room_.report_full != nullptr) room_.report_full(room_.self);
      return no_slot;
    }
    std::this_thread::sleep_for(nap);
  }
}

// CUDA_ERROR_NOT_READY: the thread has to wait for another one.
CUresult LeaseUsers::enter_slowly(LeaseSlot** slot, bool may_wait, Time since) noexcept {
  std::unique_lock lock(changing_);
  const std::uint64_t me = thread_number();
  if (closed_by_ != 0 && closed_by_ != me) return CUDA_ERROR_INVALID_CONTEXT;
  if ((*slot = free_slot()) != nullptr) return CUDA_SUCCESS;
  if (making_ || (may_wait && slot_count() >= most())) return CUDA_ERROR_NOT_READY;
  if (!prepare_slot()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext context = context_;
  CUgreenCtx green = nullptr;
  if (is_green() && slot_count() != 0) {
    making_ = true;  // and nobody closes it meanwhile
    lock.unlock();
    const CUresult status = room_.make(room_.self, &green, &context, since);
    lock.lock();
    making_ = false;
    const bool is_short = status == CUDA_ERROR_OUT_OF_MEMORY || status == CUDA_ERROR_NOT_READY;
    if (is_short && may_wait) return CUDA_ERROR_NOT_READY;
    if (status == CUDA_ERROR_NOT_READY) {
      lock.unlock();
      if (room_.report_full != nullptr) room_.report_full(room_.self);
      return no_slot;
    }
    if (status != CUDA_SUCCESS) return status;
  }
  LeaseSlot& added = add_slot(context, green);
  acquire(added, me);                   // nobody else has seen it
  if (closed_by_ == me) ++added.again;  // it stays this thread's until reopen
  thread_state.slot_hint = static_cast<std::uint32_t>(slot_count());
  slot_count_.store(slot_count() + 1, std::memory_order_release);
  *slot = &added;
  return CUDA_SUCCESS;
}

// Makes room for the next slot. Under the lock.
bool LeaseUsers::prepare_slot() noexcept {
  const std::size_t index = slot_count();
  if (index == most_slots) return false;
  std::atomic<Block*>& block = blocks_[index / block_size];
  if (block.load(std::memory_order_relaxed) == nullptr) {
    auto* const made = new (std::nothrow) Block;
    if (made == nullptr) return false;
    block.store(made, std::memory_order_release);
  }
  return true;
}

// The next slot, which counts when slot_count_ says so. Under the lock, after prepare_slot.
LeaseSlot& LeaseUsers::add_slot(CUcontext context, CUgreenCtx green) noexcept {
  LeaseSlot& slot = at(slot_count());
  slot.context = context;
  slot.green = green;
  return slot;
}

// The calling thread becomes the owner of every slot, so that no other one finds a free one, and no
// slot is added while it is closed.
bool LeaseUsers::close() noexcept {
  const std::uint64_t me = thread_number();
  const std::lock_guard lock(changing_);
  if (closed_by_ != 0 || making_) return false;
  const std::size_t count = slot_count();
  for (std::size_t index = 0; index < count; ++index) {
    std::uint64_t free = 0;
    if (at(index).owner.compare_exchange_strong(free, me, std::memory_order_acq_rel)) continue;
    while (index > 0) at(--index).owner.store(0, std::memory_order_release);
    return false;
  }
  closed_by_ = me;
  return true;
}

void LeaseUsers::reopen() noexcept {
  const std::lock_guard lock(changing_);
  closed_by_ = 0;
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) leave(at(index));
}

void LeaseUsers::close_for_good() noexcept {
  const std::lock_guard lock(changing_);
  closed_by_ = nobody;
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) {
    at(index).owner.store(nobody, std::memory_order_release);
  }
}

bool LeaseUsers::is_open() const noexcept {
  const std::lock_guard lock(changing_);
  return closed_by_ == 0;
}

std::size_t LeaseUsers::inside() const noexcept {
  std::size_t inside = 0;
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) {
    const std::uint64_t owner = at(index).owner.load(std::memory_order_acquire);
    if (owner != 0 && owner != nobody) ++inside;
  }
  return inside;
}

std::uint64_t LeaseUsers::entered() const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) {
    sum += at(index).entered.load(std::memory_order_relaxed);
  }
  return sum;
}

bool LeaseUsers::has_context(CUcontext context) const noexcept {
  if (context == context_) return true;
  for (std::size_t index = 1, count = is_green() ? slot_count() : 0; index < count; ++index) {
    if (at(index).context == context) return true;
  }
  return false;
}

bool LeaseUsers::has_sibling(CUgreenCtx green) const noexcept {
  for (std::size_t index = 0, count = slot_count(); index < count; ++index) {
    if (at(index).green == green) return true;
  }
  return false;
}

}  // namespace ctxbroker::detail
