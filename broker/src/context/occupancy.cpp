#include "context/occupancy.hpp"

#include "context/epoch.hpp"

namespace ctxbroker::detail {
namespace {

// Stands for the thread in a seat that is not anybody's.
constexpr char not_for_all = 0;

}  // namespace

Occupancy::Occupancy(CUcontext context) noexcept : context_(context) {
  open();
}

Occupancy::Occupancy(CUcontext first, MakeSibling make, void* maker, Barrier barrier) noexcept
    : context_(first), make_(make), maker_(maker), barrier_(barrier), keeps_seats_(barrier()) {
  seats_[0].context = first;
  if (keeps_seats_) seats_[0].thread.store(&not_for_all, std::memory_order_relaxed);
  seat_count_.store(1, std::memory_order_release);
}

CUresult Occupancy::sit_down(CUcontext* context, Seat** seat) noexcept {
  const CUresult status = find_seat(context, seat);
  if (status != CUDA_SUCCESS) leave(nullptr);
  return status;
}

CUresult Occupancy::find_seat(CUcontext* context, Seat** seat) noexcept {
  if (make_ == nullptr || closed_.load(std::memory_order_relaxed)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  Seat* mine = free_seat();
  if (mine == nullptr) {
    const std::lock_guard lock(changing_);
    const std::uint32_t shard = shard_of_this_thread();
    // Somebody has looked meanwhile whether the thread's own could be had, and it could not.
    *context = shards_[shard].context.load(std::memory_order_relaxed);
    if (*context != nullptr) return CUDA_SUCCESS;
    mine = seat_out_of_use();
    if (mine == nullptr) {
      const CUresult status = add_seat(&mine);
      if (status != CUDA_SUCCESS) return status;
    }
    *context = mine->context;
    if (keep_for(*mine, shard)) return CUDA_SUCCESS;
    mine->thread.store(&thread_notes, std::memory_order_release);
  }
  ++mine->depth;
  *context = mine->context;
  *seat = mine;
  return CUDA_SUCCESS;
}

// Anybody's: this thread's already, or free. Where a thread's notes lie tells it apart.
Seat* Occupancy::free_seat() noexcept {
  const std::size_t count = seats();
  for (const void* const wanted : {static_cast<const void*>(&thread_notes), (const void*)nullptr}) {
    for (std::size_t index = 0; index < count; ++index) {
      Seat& seat = seats_[index];
      const void* holder = seat.thread.load(std::memory_order_relaxed);
      if (holder != wanted) continue;
      if (holder != nullptr ||
          seat.thread.compare_exchange_strong(holder, &thread_notes, std::memory_order_acquire)) {
        return &seat;
      }
    }
  }
  return nullptr;
}

Seat* Occupancy::seat_out_of_use() noexcept {
  for (std::size_t index = 0; index < seats(); ++index) {
    Seat& seat = seats_[index];
    if (seat.thread.load(std::memory_order_relaxed) == &not_for_all && take_over(seat)) {
      return &seat;
    }
  }
  return nullptr;
}

bool Occupancy::take_over(Seat& seat) noexcept {
  if (seat.keeper == 0) return true;
  const std::uint32_t shard = seat.keeper - 1;
  OccupancyShard& its = shards_[shard];
  if (somebody_is_inside(shard)) return false;
  its.context.store(nullptr, std::memory_order_relaxed);
  end_epoch();  // its thread remembers the seat
  // The other side of enter. Who comes in from here on finds no seat there, and waits for the lock.
  if (!barrier_() || somebody_is_inside(shard)) {
    its.context.store(seat.context, std::memory_order_release);
    return false;
  }
  seat.keeper = 0;
  ++seat.moves;
  return true;
}

bool Occupancy::somebody_is_inside(std::uint32_t shard) const noexcept {
  return has_lean_guard(shard, shards_[shard]) || !shards_[shard].nobody_is_inside();
}

// False: the seat is to be anybody's.
bool Occupancy::keep_for(Seat& seat, std::uint32_t shard) noexcept {
  if (!keeps_seats_ || shard >= own_shards || seat.moves > most_moves) return false;
  seat.keeper = shard + 1;
  shards_[shard].context.store(seat.context, std::memory_order_release);
  return true;
}

CUresult Occupancy::add_seat(Seat** seat) noexcept {
  const std::size_t index = seats();
  if (index == most_seats) return CUDA_ERROR_NOT_PERMITTED;
  Seat& added = seats_[index];
  const CUresult status = make_(maker_, &added.green, &added.context);
  if (status != CUDA_SUCCESS) return status;
  added.thread.store(&not_for_all, std::memory_order_relaxed);
  seat_count_.store(index + 1, std::memory_order_release);
  if (seat != nullptr) *seat = &added;
  return CUDA_SUCCESS;
}

// For every thread that need not ask.
void Occupancy::open() noexcept {
  if (make_ == nullptr) {
    for (OccupancyShard& one : shards_) one.context.store(context_, std::memory_order_release);
  }
  for (std::size_t index = 0; index < seats(); ++index) {
    const Seat& seat = seats_[index];
    if (seat.keeper == 0) continue;
    shards_[seat.keeper - 1].context.store(seat.context, std::memory_order_release);
  }
}

bool Occupancy::close() noexcept {
  {
    const std::lock_guard lock(changing_);
    closed_.store(true, std::memory_order_relaxed);
    for (OccupancyShard& one : shards_) one.context.store(nullptr, std::memory_order_relaxed);
    end_epoch();  // threads remember where they were
    if (barrier_() && inside() == 0) return true;
  }
  reopen();
  return false;
}

void Occupancy::reopen() noexcept {
  const std::lock_guard lock(changing_);
  closed_.store(false, std::memory_order_release);
  open();
}

std::int64_t Occupancy::inside() const noexcept {
  // A lean guard may be counted while this goes on, and what was left is read before what was
  // entered: nobody who is still inside is overlooked.
  std::uint64_t lean = 0, left = 0, entered = 0;
  for (std::uint32_t shard = 0; shard < own_shards; ++shard) {
    if (has_lean_guard(shard, shards_[shard])) ++lean;
  }
  for (const OccupancyShard& one : shards_) left += one.left.load(std::memory_order_acquire);
  for (const OccupancyShard& one : shards_) entered += one.entered.load(std::memory_order_relaxed);
  return static_cast<std::int64_t>(lean + entered - left);
}

std::uint64_t Occupancy::entered() const noexcept {
  std::uint64_t sum = 0;
  for (const OccupancyShard& one : shards_) {
    sum += one.entered.load(std::memory_order_relaxed);
    sum += one.lean_guards.load(std::memory_order_relaxed);
  }
  return sum;
}

CUresult Occupancy::prepare(std::size_t threads) noexcept {
  if (make_ == nullptr) return CUDA_SUCCESS;
  const std::lock_guard lock(changing_);
  while (seats() < threads && seats() < most_seats) {
    const CUresult status = add_seat(nullptr);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace ctxbroker::detail
