// SPDX-License-Identifier: Apache-2.0
// Frames: the memory that holds a group's (or, scalar, a lane's) values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/code.hpp"

namespace ctxbroker::software::exec {

struct BlockPosition {
  const Launch* launch;
  Dim3 block;               // its index in the grid
  const std::byte* shared;  // of this block
};

// Which presets to write: those that a launch fixes, or those that change with block and thread.
enum class PresetScope { launch, block, thread };
PresetScope scope_of(const Preset& preset) noexcept;

void fill_lockstep(const Code& code, const BlockPosition& at, std::uint32_t first_thread,
                   PresetScope scope, std::byte* frame);
void fill_scalar(const Code& code, const BlockPosition& at, std::uint32_t thread, PresetScope scope,
                 std::byte* frame);

// Moves one lane's values from a lockstep frame to a scalar one.
void lane_to_scalar(const Code& code, const std::byte* lockstep, std::uint32_t lane,
                    std::byte* scalar);

}  // namespace ctxbroker::software::exec
