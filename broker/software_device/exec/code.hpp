// SPDX-License-Identifier: Apache-2.0
// One kernel, lowered: steps whose operands are values, the places of those values in the frames
// of both engines, and what a frame must hold before the first step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exec/engine.hpp"

namespace ctxbroker::software::exec {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept {
  return (value + to - 1) / to * to;
}

using ValueId = std::uint32_t;
inline constexpr ValueId no_value = ~0U;

// Operations have one number on all levels: their place in the tables, one after another.
using OpId = std::uint16_t;
struct Op {
  OpId id;
  const OpEntry* entry;  // of the baseline; widths and kinds are the same on every level
};
// Null if the engines have no such operation.
const Op* find_op(std::string_view name);
const Level& level_of(CpuLevel level) noexcept;
const OpEntry& op_entry(CpuLevel level, OpId id);

inline constexpr std::uint16_t no_row = 0xffff;

struct Step {
  OpId op = 0;
  bool guard_negated = false;
  std::uint16_t row = no_row;  // of an access in Rows::body, in place of its address
  std::uint16_t extra_count = 0;
  std::uint32_t line = 0;
  std::uint32_t first_extra = 0;  // in Code::extra
  ValueId dst = no_value;
  std::array<ValueId, 4> sources = {no_value, no_value, no_value, no_value};
  ValueId guard = no_value;
  std::int64_t immediate = 0;
};

// Where a value that no instruction writes comes from.
enum class Origin : std::uint8_t {
  literal,             // bits
  global,              // address of Launch::globals[index], plus bits
  parameter,           // bytes of the parameter buffer at bits
  parameters_address,  // address of the parameter buffer, plus bits
  shared_address,      // address of the block's shared memory, plus bits
  thread,              // of the lane: index is a ThreadValue
  block,               // of the block: index is a BlockValue
};
enum class ThreadValue : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  laneid,
  warpid,
  mask_eq,
  mask_lt,
  mask_le,
  mask_gt,
  mask_ge,
};
enum class BlockValue : std::uint8_t {
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  nwarpid,
  gridid,
  zero,
  one,
  dynamic_shared,
  total_shared,
  workspace_high,
  workspace_low,
};
struct Preset {
  Origin origin = Origin::literal;
  std::uint8_t width = 4;
  bool sign_extend = false;       // parameter: narrower in memory than the value
  std::uint8_t memory_width = 4;  // parameter: bytes in the buffer
  std::uint32_t index = 0;
  std::uint64_t bits = 0;
  ValueId value = no_value;  // set when places are given out
};

// Where a value lies: lockstep at `lockstep` (64 lanes of `width` bytes), scalar at `scalar`.
struct Place {
  std::uint32_t lockstep = no_offset, scalar = no_offset;
  std::uint8_t width = 0;
};

struct Rows;

class Code {
 public:
  std::vector<Step> steps;
  std::vector<ValueId> extra;
  std::vector<std::vector<std::uint32_t>> tables;  // of jumps: steps, or no_target
  std::vector<Place> places;                       // by ValueId
  std::vector<Preset> presets;
  std::vector<Place> slots;  // the distinct places, to move a lane between engines
  std::uint32_t lockstep_bytes = 0, scalar_bytes = 0;  // of a frame (scalar: of one lane)
  std::uint32_t static_shared_bytes = 0, local_bytes = 0;
  std::uint32_t shared_variable_bytes = 0;  // of those, without what aligns dynamic memory
  bool uses_stack = false;                  // calls functions that are not expanded in place
  bool uses_heap = false;                   // calls malloc or free
  bool has_barrier = false;
  bool has_warp_operation = false;   // needs the lockstep engine
  bool has_atomic = false;           // lanes may wait for each other
  std::shared_ptr<const Rows> rows;  // the same kernel for blocks of one dimension; may be null

  // The steps, resolved for one engine on one level. Made at first use; any thread may ask.
  const Instr* lockstep(CpuLevel level) const;
  const Instr* scalar(CpuLevel level) const;

 private:
  struct Resolved {
    std::once_flag once;
    std::vector<Instr> instructions;
    std::vector<std::uint32_t> extra;
  };
  void resolve(Resolved& into, CpuLevel level, bool scalar) const;
  mutable std::array<Resolved, 6> resolved_;
};

// A kernel whose threads access elements that follow one another, as most kernels over arrays do.
// In a block of one dimension, the addresses of the first and the last thread then tell all others,
// and `body` calculates none. Only the lockstep engine can run it.
struct Rows {
  struct Row {
    ValueId address = no_value;  // in `addresses`
    std::uint32_t bytes = 0;     // from a thread to the next
  };
  Code addresses;  // calculates the addresses of one thread; run by the scalar engine
  std::vector<Row> rows;
  Code body;
};

}  // namespace ctxbroker::software::exec
