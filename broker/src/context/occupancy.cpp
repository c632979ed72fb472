#include "context/occupancy.hpp"

namespace ctxbroker::detail {
namespace {

// A thread's number is only for spreading counters; its address tells threads apart. Neither has a
// destructor: guards are entered until the very end of a thread.
std::atomic<std::uint32_t> last_thread{0};

struct ThreadMark {
  std::uint32_t number;
};
// initial-exec for the reason given in guard.cpp.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadMark this_thread_mark{0};

std::uint32_t thread_number() noexcept {
  if (this_thread_mark.number == 0) {
    this_thread_mark.number = last_thread.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  return this_thread_mark.number;
}

}  // namespace

Occupancy::Occupancy(CUcontext first, MakeSibling make, void* maker) noexcept
    : context_(first), make_(make), maker_(maker) {
  seats_[0].context = first;
  seat_count_.store(1, std::memory_order_release);
}

// Release: whoever sees nobody inside also sees what was done inside.
void Occupancy::count(std::atomic<std::uint64_t> Shard::*counter) noexcept {
  const std::size_t number = thread_number() - 1;
  if (number < own_shards) {
    // Nobody else writes here, so no bus has to be locked: that is most of a guard's own time.
    std::atomic<std::uint64_t>& own = shards_[number].*counter;
    own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  } else {
    (shards_[own_shards + number % shared_shards].*counter).fetch_add(1, std::memory_order_release);
  }
}

Seat* Occupancy::free_seat(const void* thread) noexcept {
  const std::size_t count = seats();
  for (std::size_t index = 0; index < count; ++index) {
    Seat& seat = seats_[index];
    const void* holder = seat.thread.load(std::memory_order_relaxed);
    if (holder == thread) return &seat;
    if (holder == nullptr &&
        seat.thread.compare_exchange_strong(holder, thread, std::memory_order_acquire)) {
      return &seat;
    }
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

CUresult Occupancy::enter(CUcontext* context, Seat** seat) noexcept {
  *context = context_;
  *seat = nullptr;
  if (make_ != nullptr) {
    const void* const thread = &this_thread_mark;
    Seat* mine = free_seat(thread);
    if (mine == nullptr) {
      const CUresult status = add_seat(&mine, thread);
      if (status != CUDA_SUCCESS) return status;
    }
    ++mine->depth;
    *context = mine->context;
    *seat = mine;
  }
  count(&Shard::entered);
  return CUDA_SUCCESS;
}

void Occupancy::leave(Seat* seat) noexcept {
  if (seat != nullptr && --seat->depth == 0) {
    seat->thread.store(nullptr, std::memory_order_release);
  }
  count(&Shard::left);
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
