// The names of the plug-in ABI's status codes.
#pragma once

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// "CTXB_ERROR_DRIVER"; "an unknown status" for a code that version 1.0 does not have.
const char* status_name(ctxb_status status) noexcept;

// The code that tells a plug-in about a driver's status.
ctxb_status status_for_driver(int driver_status) noexcept;

}  // namespace ctxbroker::detail
