// SPDX-License-Identifier: Apache-2.0
// The driver's context stack of the calling thread, as the broker's guards see and repair it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The contexts that one guard has taken from a thread's stack and must give back. There are rarely
// more than one. When there are more than `few`, the rest goes to allocated memory.
struct TakenContexts {
  static constexpr std::uint32_t few = 4;

  // Does not clear `own`, because every guard has one and most guards do not need it.
  TakenContexts() noexcept {}

  bool add(CUcontext context) noexcept;  // false: out of memory
  CUcontext remove_last() noexcept;      // frees the memory that is not needed any more
  // Removes the context nearest the bottom that has this handle, if there is one.
  void remove_lowest(CUcontext context) noexcept;
  bool append(const TakenContexts& below) noexcept;  // false: out of memory
  bool empty() const noexcept { return count == 0; }
  CUcontext at(std::uint32_t index) const noexcept {  // from the top of the stack
    return index < few ? own[index] : more[index - few];
  }

  std::uint32_t count = 0;
  CUcontext own[few];  // top of the stack first; `more` goes on
  std::vector<CUcontext> more;
};

// Takes every context from the calling thread's stack. Returns CUDA_SUCCESS when the stack is
// empty, otherwise the status that stopped it or CUDA_ERROR_OUT_OF_MEMORY. `taken` has what was
// taken until then. An empty stack costs one cuCtxGetCurrent.
CUresult take_stack(const DriverTable& driver, TakenContexts& taken) noexcept;

// Pushes a context, and tries once more when that fails, because nothing else would push it.
CUresult put_back(const DriverTable& driver, CUcontext context) noexcept;

// Gives back all that was taken. Goes on after an error, and returns the first error.
CUresult give_back_stack(const DriverTable& driver, TakenContexts& taken) noexcept;

// The contexts that were on a stack before it was emptied.
struct Emptied {
  std::size_t count = 0;
  CUcontext top = nullptr, bottom = nullptr;
  CUresult status = CUDA_SUCCESS;  // the error that stopped it before the stack was empty
};
// Keeps none of them, so a deep stack takes no memory.
Emptied empty_stack(const DriverTable& driver) noexcept;
// Does the same for a stack in which `own` was pushed above `under`, the context that was there
// before (null: not known). What is below the `own` nearest the bottom goes to `below`, which is
// empty, and is not counted. If `own` is gone, `under` goes there, and all else is counted.
Emptied empty_stack_to(const DriverTable& driver, CUcontext own, CUcontext under,
                       TakenContexts& below) noexcept;

}  // namespace ctxbroker::detail
