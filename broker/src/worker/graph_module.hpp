// SPDX-License-Identifier: Apache-2.0
// The library's own worker module: a broker with one graph. graph_wire.hpp says what it answers.
#pragma once

#include "ctxbroker/worker_module.h"

namespace ctxbroker::detail {

extern const ctxb_worker_module graph_module;

}  // namespace ctxbroker::detail
