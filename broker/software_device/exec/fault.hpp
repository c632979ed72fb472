// SPDX-License-Identifier: Apache-2.0
// What a fault says to people.
#pragma once

#include <string>

#include "exec/engine.hpp"

namespace ctxbroker::software::exec {

// One sentence: kernel, block, thread, address, line of the PTX text. For a failed assert the line
// that CUDA prints, with the texts from `memory`, which may be null.
std::string describe(const FaultRecord& fault, const std::string& kernel, const Dim3& block,
                     const Dim3& thread, const MemoryMap* memory);

}  // namespace ctxbroker::software::exec
