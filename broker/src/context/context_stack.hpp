// The driver's context stack of the calling thread, as the broker's guards see and repair it.
#pragma once

#include <vector>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Pops every context of the calling thread and appends them to `taken`, top first. Returns
// CUDA_SUCCESS when the stack is empty; otherwise the status that stopped it. An empty stack costs
// one cuCtxGetCurrent. Never throws: out of memory is CUDA_ERROR_OUT_OF_MEMORY.
CUresult drain(const DriverTable& driver, std::vector<CUcontext>& taken) noexcept;

// Pushes taken[from..] again, last first, and removes them from `taken`. Goes on after an error and
// returns the first.
CUresult put_back(const DriverTable& driver, std::vector<CUcontext>& taken,
                  std::size_t from) noexcept;

}  // namespace ctxbroker::detail
