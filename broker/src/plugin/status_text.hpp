// SPDX-License-Identifier: Apache-2.0
// The plug-in ABI's status codes: their names, and which one tells of an error.
#pragma once

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// "CTXB_ERROR_DRIVER"; "an unknown status" for a code that version 1.0 does not have.
const char* status_name(ctxb_status status) noexcept;

// The code that tells a plug-in about an Error, or about a driver's status.
ctxb_status status_for(ErrorKind kind) noexcept;
ctxb_status status_for_driver(int driver_status) noexcept;

}  // namespace ctxbroker::detail
