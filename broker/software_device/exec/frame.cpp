// SPDX-License-Identifier: Apache-2.0
#include "exec/frame.hpp"

#include <algorithm>
#include <cstring>

namespace ctxbroker::software::exec {
namespace {

constexpr std::uint32_t warp_lanes = 32;

std::uint64_t parameter(const Preset& preset, const Launch& launch) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, launch.parameters.data() + preset.bits, preset.memory_width);
  if (preset.sign_extend) {
    const unsigned shift = 64 - 8 * preset.memory_width;
    bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift);
  }
  return bits;
}

std::uint64_t block_value(BlockValue which, const BlockPosition& at, const Code& code) {
  const Launch& launch = *at.launch;
  const std::uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
  switch (which) {
    case BlockValue::ntid_x:
      return launch.block.x;
    case BlockValue::ntid_y:
      return launch.block.y;
    case BlockValue::ntid_z:
      return launch.block.z;
    case BlockValue::ctaid_x:
      return at.block.x;
    case BlockValue::ctaid_y:
      return at.block.y;
    case BlockValue::ctaid_z:
      return at.block.z;
    case BlockValue::nctaid_x:
      return launch.grid.x;
    case BlockValue::nctaid_y:
      return launch.grid.y;
    case BlockValue::nctaid_z:
      return launch.grid.z;
    case BlockValue::nwarpid:
      return (threads + warp_lanes - 1) / warp_lanes;
    case BlockValue::gridid:
      return 1;
    case BlockValue::zero:
      return 0;
    case BlockValue::one:
      return 1;
    case BlockValue::dynamic_shared:
      return launch.dynamic_shared_bytes;
    case BlockValue::workspace_high:
      return launch.workspace >> 32;
    case BlockValue::workspace_low:
      return launch.workspace & 0xffffffffU;
    case BlockValue::total_shared:
      return code.static_shared_bytes + launch.dynamic_shared_bytes;
  }
  return 0;
}

std::uint64_t thread_value(ThreadValue which, const Dim3& block, std::uint32_t thread) {
  const std::uint32_t lane = thread % warp_lanes;
  const std::uint32_t below = (1U << lane) - 1, own = 1U << lane;
  switch (which) {
    case ThreadValue::tid_x:
      return thread % block.x;
    case ThreadValue::tid_y:
      return thread / block.x % block.y;
    case ThreadValue::tid_z:
      return thread / block.x / block.y;
    case ThreadValue::laneid:
      return lane;
    case ThreadValue::warpid:
      return thread / warp_lanes;
    case ThreadValue::mask_eq:
      return own;
    case ThreadValue::mask_lt:
      return below;
    case ThreadValue::mask_le:
      return below | own;
    case ThreadValue::mask_gt:
      return ~(below | own);
    case ThreadValue::mask_ge:
      return ~below;
  }
  return 0;
}

std::uint64_t uniform_value(const Preset& preset, const BlockPosition& at, const Code& code) {
  switch (preset.origin) {
    case Origin::literal:
      return preset.bits;
    case Origin::global:
      return at.launch->globals[preset.index] + preset.bits;
    case Origin::parameter:
      return parameter(preset, *at.launch);
    case Origin::parameters_address:
      return reinterpret_cast<std::uintptr_t>(at.launch->parameters.data()) + preset.bits;
    case Origin::shared_address:
      return reinterpret_cast<std::uintptr_t>(at.shared) + preset.bits;
    case Origin::block:
      return block_value(static_cast<BlockValue>(preset.index), at, code);
    case Origin::thread:
      break;
  }
  return 0;
}

template <class T>
void broadcast(std::byte* slot, std::uint64_t bits) {
  std::fill_n(reinterpret_cast<T*>(slot), group_lanes, static_cast<T>(bits));
}

// Row by row, because the threads of a group follow one another.
void fill_thread_ids(ThreadValue which, const Dim3& block, std::uint32_t first, std::byte* slot) {
  auto* lanes = reinterpret_cast<std::uint32_t*>(slot);
  std::uint32_t x = first % block.x, row = first / block.x;
  for (std::uint32_t i = 0; i < group_lanes; x = 0, ++row) {
    const std::uint32_t end = std::min(group_lanes, i + block.x - x);
    if (which == ThreadValue::tid_x) {
      for (std::uint32_t next = x; i < end; ++i, ++next) lanes[i] = next;
    } else {
      const std::uint32_t id = which == ThreadValue::tid_y ? row % block.y : row / block.y;
      for (; i < end; ++i) lanes[i] = id;
    }
  }
}

}  // namespace

PresetScope scope_of(const Preset& preset) noexcept {
  if (preset.origin == Origin::thread) return PresetScope::thread;
  const auto which = static_cast<BlockValue>(preset.index);
  const bool changes = preset.origin == Origin::block &&
                       (which == BlockValue::ctaid_x || which == BlockValue::ctaid_y ||
                        which == BlockValue::ctaid_z);
  return changes ? PresetScope::block : PresetScope::launch;
}

void fill_lockstep(const Code& code, const BlockPosition& at, std::uint32_t first_thread,
                   PresetScope scope, std::byte* frame) {
  for (const Preset& preset : code.presets) {
    if (scope_of(preset) != scope) continue;
    std::byte* slot = frame + code.places[preset.value].lockstep;
    if (preset.origin == Origin::thread) {
      const auto which = static_cast<ThreadValue>(preset.index);
      if (which <= ThreadValue::tid_z) {
        fill_thread_ids(which, at.launch->block, first_thread, slot);
        continue;
      }
      auto* lanes = reinterpret_cast<std::uint32_t*>(slot);
      for (std::uint32_t i = 0; i < group_lanes; ++i) {
        lanes[i] =
            static_cast<std::uint32_t>(thread_value(which, at.launch->block, first_thread + i));
      }
      continue;
    }
    const std::uint64_t bits = uniform_value(preset, at, code);
    switch (preset.width) {
      case 1:
        broadcast<std::uint8_t>(slot, bits);
        break;
      case 2:
        broadcast<std::uint16_t>(slot, bits);
        break;
      case 4:
        broadcast<std::uint32_t>(slot, bits);
        break;
      default:
        broadcast<std::uint64_t>(slot, bits);
        break;
    }
  }
}

void fill_scalar(const Code& code, const BlockPosition& at, std::uint32_t thread, PresetScope scope,
                 std::byte* frame) {
  for (const Preset& preset : code.presets) {
    if (scope_of(preset) != scope) continue;
    const std::uint64_t bits =
        preset.origin == Origin::thread
            ? thread_value(static_cast<ThreadValue>(preset.index), at.launch->block, thread)
            : uniform_value(preset, at, code);
    std::memcpy(frame + code.places[preset.value].scalar, &bits, sizeof(bits));
  }
}

void lane_to_scalar(const Code& code, const std::byte* lockstep, std::uint32_t lane,
                    std::byte* scalar) {
  for (const Place& slot : code.slots) {
    std::memcpy(scalar + slot.scalar, lockstep + slot.lockstep + std::size_t{lane} * slot.width,
                slot.width);
  }
}

}  // namespace ctxbroker::software::exec
