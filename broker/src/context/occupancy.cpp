#include "context/occupancy.hpp"

#include "context/process_barrier.hpp"

namespace ctxbroker::detail {

Occupancy::Occupancy(CUcontext first, MakeSibling make, void* maker) noexcept
    : context_(first), make_(make), maker_(maker) {
  seats_[0].context = first;
  seat_count_.store(1, std::memory_order_release);
}

// This thread's already, or free.
Seat* Occupancy::free_seat() noexcept {
  const std::size_t count = seats();
  for (std::size_t index = 0; index < count; ++index) {
    Seat& seat = seats_[index];
    if (seat.thread.load(std::memory_order_relaxed) == &thread_notes || take(seat)) return &seat;
  }
  return nullptr;
}

CUresult Occupancy::add_seat(Seat** seat, const void* thread) noexcept {
  const std::lock_guard lock(growing_);
  const std::size_t index = seats();
  if (index == most_seats) return CUDA_ERROR_NOT_PERMITTED;
  Seat& added = seats_[index];
  const CUresult status = make_(maker_, &added.green, &added.context);
  if (status != CUDA_SUCCESS) return status;
  added.thread.store(thread, std::memory_order_relaxed);
  seat_count_.store(index + 1, std::memory_order_release);
  if (seat != nullptr) *seat = &added;
  return CUDA_SUCCESS;
}

Seat* Occupancy::sit_down(CUresult* status) noexcept {
  Seat* mine = free_seat();
  if (mine == nullptr) *status = add_seat(&mine, &thread_notes);
  if (mine != nullptr) ++mine->depth;
  return mine;
}

bool Occupancy::close() noexcept {
  closed_.store(true, std::memory_order_relaxed);
  if (barrier_on_all_threads() && inside() == 0) return true;
  reopen();
  return false;
}

std::int64_t Occupancy::inside() const noexcept {
  // What was left is read first: nobody who is still inside is overlooked.
  std::uint64_t left = 0;
  for (const Shard& one : shards_) left += one.left.load(std::memory_order_acquire);
  return static_cast<std::int64_t>(entered() - left);
}

std::uint64_t Occupancy::entered() const noexcept {
  std::uint64_t sum = 0;
  for (const Shard& one : shards_) sum += one.entered.load(std::memory_order_relaxed);
  return sum;
}

CUresult Occupancy::prepare(std::size_t threads) noexcept {
  if (make_ == nullptr) return CUDA_SUCCESS;
  while (seats() < threads && seats() < most_seats) {
    const CUresult status = add_seat(nullptr, nullptr);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace ctxbroker::detail
