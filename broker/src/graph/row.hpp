// SPDX-License-Identifier: Apache-2.0
// A graph without edges: plug-ins in a row.
#pragma once

#include <vector>

#include "ctxbroker/graph.hpp"

namespace ctxbroker::detail {

// The nodes have the plug-ins' short names, with a number where a name repeats: "blur", "blur_2".
// Throws Error (invalid_argument).
GraphDescription in_a_row(const std::vector<PluginInstance*>& instances, SampleType samples);

}  // namespace ctxbroker::detail
