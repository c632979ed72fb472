// SPDX-License-Identifier: Apache-2.0
// Waits for work on the device, with a limit.
#pragma once

#include <chrono>
#include <functional>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Asks until the answer is something else than CUDA_ERROR_NOT_READY. With a `limit` above zero it
// gives up after that time and returns CUDA_ERROR_TIMEOUT, which the driver's own functions do not
// return here. `query` captures at most two words, so that nothing is allocated.
CUresult ask_until_ready(const std::function<CUresult()>& query,
                         std::chrono::nanoseconds limit) noexcept;
// Waits until the stream's work is done. Any stream but the default one needs no current context.
// `limit` is as above.
CUresult wait_for(const DriverTable& driver, CUstream stream,
                  std::chrono::nanoseconds limit) noexcept;
// Waits in the same way until an event has happened.
CUresult wait_for_event(const DriverTable& driver, CUevent event,
                        std::chrono::nanoseconds limit) noexcept;

}  // namespace ctxbroker::detail
