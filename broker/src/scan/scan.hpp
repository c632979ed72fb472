// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ctxbroker/scan.hpp"

namespace ctxbroker::detail {

// As ctxbroker::scan, for a process with raised privileges or for another one.
ScanResult scan_as(const ScanOptions& options, bool elevated);

}  // namespace ctxbroker::detail
