// The driver's context stack of the calling thread, as the broker's guards see and repair it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Contexts that one guard has taken from a thread's stack and owes it. Nearly always none or one;
// a deeper stack than there is room for here goes to memory of its own until it is given back.
struct TakenContexts {
  static constexpr std::uint32_t few = 4;

  // Its room is not cleared: one lives in every guard, and most need none.
  TakenContexts() noexcept {}

  bool add(CUcontext context) noexcept;  // false: there is no room to owe it
  CUcontext remove_last() noexcept;      // frees the memory with the last one of all
  bool empty() const noexcept { return count == 0; }
  CUcontext at(std::uint32_t index) const noexcept {  // from the top of the stack
    return index < few ? own[index] : more[index - few];
  }
  void clear() noexcept;  // nothing is owed

  std::uint32_t count = 0;
  std::uint32_t room = 0;  // of more
  CUcontext* more = nullptr;
  CUcontext own[few];  // top of the stack first; `more` goes on
};

// Takes every context of the calling thread. Returns CUDA_SUCCESS when the stack is empty;
// otherwise the status that stopped it, or CUDA_ERROR_OUT_OF_MEMORY when there are more than there
// is room for. What was taken by then is in `taken`. An empty stack costs one cuCtxGetCurrent.
CUresult take_stack(const DriverTable& driver, TakenContexts& taken) noexcept;

// Pushes what nothing else would put there: when that fails it is tried again.
CUresult put_back(const DriverTable& driver, CUcontext context) noexcept;

// Gives back all that was taken. Goes on after an error; returns the first.
CUresult give_back_stack(const DriverTable& driver, TakenContexts& taken) noexcept;

// What stood on a stack that was emptied.
struct Emptied {
  std::size_t count = 0;
  CUcontext top = nullptr, bottom = nullptr;
  CUresult status = CUDA_SUCCESS;  // what stopped it before it was empty
};
Emptied empty_stack(const DriverTable& driver) noexcept;

}  // namespace ctxbroker::detail
