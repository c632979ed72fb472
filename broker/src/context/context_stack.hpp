// The driver's context stack of the calling thread, as the broker's guards see and repair it.
#pragma once

#include <array>
#include <cstddef>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Contexts that guards have taken from a thread's stack and owe it. It has no destructor and never
// allocates, so that a thread_local one can be used until the very end of the process.
struct TakenContexts {
  static constexpr std::size_t most = 256;
  std::array<CUcontext, most> contexts;  // top of the stack first, per guard
  std::size_t count;
};

// Takes every context of the calling thread. Returns CUDA_SUCCESS when the stack is empty;
// otherwise the status that stopped it, or CUDA_ERROR_OUT_OF_MEMORY when there are more than there
// is room for. What was taken by then is in `taken`. An empty stack costs one cuCtxGetCurrent.
CUresult take_stack(const DriverTable& driver, TakenContexts& taken) noexcept;

// Gives back what was taken since `taken` held `from`. Goes on after an error; returns the first.
CUresult give_back_stack(const DriverTable& driver, TakenContexts& taken,
                         std::size_t from) noexcept;

// What stood on a stack that was emptied.
struct Emptied {
  std::size_t count = 0;
  CUcontext top = nullptr, bottom = nullptr;
  CUresult status = CUDA_SUCCESS;  // what stopped it before it was empty
};
Emptied empty_stack(const DriverTable& driver) noexcept;

}  // namespace ctxbroker::detail
