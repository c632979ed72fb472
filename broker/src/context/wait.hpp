// Waiting for a stream, for ever or for so long.
#pragma once

#include <chrono>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Waits until the stream's work is done. A stream that was made (not the default one) needs no
// current context. With a `limit` above zero it gives up after that time and returns
// CUDA_ERROR_TIMEOUT, which no driver call here returns by itself.
CUresult wait_for(const DriverTable& driver, CUstream stream,
                  std::chrono::milliseconds limit) noexcept;

}  // namespace ctxbroker::detail
