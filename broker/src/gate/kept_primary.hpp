// Primary contexts that outlive the broker.
#pragma once

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Retains the primary for good, once per device and process: code that stays loaded behind a
// closed tenant may hold its handle, as the runtime library does, which is of no use any more once
// that context has ended. Any thread.
CUresult keep_primary(const DriverTable& driver, CUdevice device) noexcept;

}  // namespace ctxbroker::detail
