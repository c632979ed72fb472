// SPDX-License-Identifier: Apache-2.0
// What the engines share: resolved instructions, the state of a running block, and the table of
// operations that every instruction-set level provides. Data only: the engines are compiled once
// per level, so an inline function here could leak AVX-512 code into the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/execute.hpp"

namespace ctxbroker::software::exec {

inline constexpr std::uint32_t group_lanes = 64;  // lanes that run in lockstep
inline constexpr std::uint32_t scalar_slot = 8;   // bytes of one value in a scalar frame
inline constexpr std::uint32_t site_count = 64;   // remembered address ranges
inline constexpr std::uint32_t no_offset = ~0U;   // absent operand
inline constexpr std::uint32_t no_target = ~0U;   // a place in a jump's table that leads nowhere

struct Instr;
struct Group;
struct Lane;

// Lockstep, without side effects: computes all 64 lanes into `dst`, which is the instruction's
// slot or a scratch slot whose wanted lanes are then blended in.
using PureFn = void (*)(std::byte* dst, const std::byte* frame, const Instr& in);
// Lockstep, with side effects: the lanes in `mask` only. False: a fault is recorded.
using EffectFn = bool (*)(Group& group, const Instr& in, std::uint64_t mask);
// Scalar: executes, then continues with the next instruction (or returns it, where the build does
// not turn the call into a jump). Null: lane.result says why the lane stopped.
using ScalarFn = const Instr* (*)(const Instr* in, std::byte* frame, Lane& lane);

// How the lockstep loop treats an operation.
enum class Kind : std::uint8_t {
  pure,
  effect,
  branch,
  exit,
  barrier,   // immediate: a BarrierMode; a: its number, b: threads expected, c: the vote
  converge,  // an effect over a warp: waits for the lanes named in operand d
  jump,  // a: a place in the table `extra`, whose length is the immediate. b: what a fault shows
};

enum class BarrierMode : std::uint8_t { sync, arrive, count, all, any };

// One instruction, ready to run: operands are byte offsets into the frame of the engine in
// question.
struct Instr {
  ScalarFn scalar = nullptr;
  ScalarFn inner = nullptr;  // scalar engine, guarded instruction: the operation itself
  union {
    PureFn pure = nullptr;  // lockstep engine
    EffectFn effect;
    const Instr* target;  // scalar engine: of a branch; of a jump the first instruction of all
  };
  std::uint32_t dst = no_offset;
  std::uint32_t a = no_offset, b = no_offset, c = no_offset, d = no_offset;
  std::uint32_t guard = no_offset;
  std::int64_t immediate = 0;  // address offset, branch target (index), a mode
  // Offsets of the elements of a vector operand; of a jump, instructions by number.
  const std::uint32_t* extra = nullptr;
  std::uint32_t line = 0;  // in the PTX text
  Kind kind = Kind::pure;
  std::uint8_t width = 0;  // bytes of dst
  std::uint8_t site = 0;   // which remembered range this access tries first
  bool guard_negated = false;
};

struct OpEntry {
  const char* name;
  Kind kind;
  std::uint8_t dst_width;  // bytes; 0: none or given by the operand list
  std::uint8_t source_count;
  std::uint8_t source_widths[4];
  PureFn pure;
  EffectFn effect;
  ScalarFn scalar;
  // Of an access to global memory: the same where the threads of a block access elements that
  // follow one another, row_bytes each. Operand a is the row's number in BlockState::rows.
  EffectFn row = nullptr;
  std::uint32_t row_bytes = 0;
};

// What a failed assert says: addresses of texts in device memory.
struct AssertionRecord {
  std::uint64_t expression = 0, file = 0, function = 0;
  std::uint32_t line = 0;
};

// A read may begin inside of an allocation and end beyond it, as long as it ends before the next
// boundary of 16 bytes: compilers widen reads so far, and on a GPU they find memory there. An exact
// read may not.
enum class Access : std::uint8_t { read, exact_read, write, atomic };

enum class MemorySpace : std::uint8_t { global, shared, local, parameters };

struct FaultRecord {
  Fault fault = Fault::none;
  std::uint32_t thread = 0;  // linear index in the block
  std::uint32_t line = 0;
  std::uint64_t address = 0;  // in `space`: an offset, but in global memory
  std::uint32_t bytes = 0;
  Access access = Access::read;
  MemorySpace space = MemorySpace::global;
  std::uint64_t space_bytes = 0;  // how large it is; global memory: 0
  AssertionRecord assertion = {};
};

// The immediate of stack.save and stack.load: where in the function's frame its values are saved,
// and how many there are of 1, 2, 4 and 8 bytes. Each takes 8 bytes there.
inline constexpr std::uint32_t saved_area_bits = 20, saved_count_bits = 11;
inline constexpr std::uint32_t most_saved = (1U << saved_count_bits) - 1;

inline constexpr std::uint32_t barrier_count = 16;
struct Barrier {
  std::uint32_t arrived = 0;
  std::uint32_t expected = 0;  // threads; 0: all of the block that have not exited
  std::uint32_t votes = 0;     // of the arrived, those whose predicate is true
};

// The longest access: a read never crosses a boundary of so many bytes, because it is aligned.
inline constexpr std::uint32_t widest_access = 16;

// What all lanes of a block that is being run share. One per worker, used for block after block.
struct BlockState {
  std::byte* shared = nullptr;
  std::uint64_t shared_bytes = 0;
  const std::byte* parameters = nullptr;
  std::uint64_t parameter_bytes = 0;
  const MemoryMap* memory = nullptr;
  DeviceHeap* heap = nullptr;           // where malloc's blocks lie; null: it has no room
  Printout* printout = nullptr;         // where vprintf's texts go; null: they are lost
  const std::uint64_t* rows = nullptr;  // the addresses of the block's first thread
  AddressRange sites[site_count] = {};
  // What a read that leaves its allocation reads: the bytes inside, then zeros.
  alignas(widest_access) std::byte read_end[widest_access] = {};
  Barrier barriers[barrier_count] = {};
  FaultRecord fault = {};
  std::uint64_t instructions = 0;
};

// Lanes of a group that stand at the same instruction.
struct Fragment {
  std::uint32_t pc;
  std::uint64_t mask;
};

// Lanes that wait at a barrier; pc is where they go on.
struct Parked {
  std::uint32_t pc;
  std::uint64_t mask;
  std::uint32_t barrier;
  const Instr* instruction;  // the barrier's: a vote's result goes to its dst
};

struct Group {
  BlockState* block = nullptr;
  std::byte* frame = nullptr;    // 64-byte aligned; scalar: frames of the lanes, one after another
  std::byte* scratch = nullptr;  // one slot of the widest kind
  std::byte* local = nullptr;    // .local memory: lane i at i * local_stride
  std::uint64_t local_stride = 0;
  std::uint64_t local_bytes = 0;   // legal bytes per lane
  std::uint32_t first_thread = 0;  // linear index of lane 0
  std::int32_t turn_length = 0;    // backward branches before the scheduler is asked
  std::uint32_t turn = 0;          // rotates the fragments when none can make progress alone
  std::uint64_t live = 0;          // lanes that have not exited
  std::uint64_t held = 0;          // ready lanes that wait for others of their warp
  bool scalar = false;
  bool may_turn_scalar = false;  // few lanes left: the caller moves them to the scalar engine
  std::uint32_t ready_count = 0, parked_count = 0;
  Fragment ready[group_lanes];
  Parked parked[group_lanes];
};

// One lane in the scalar engine.
struct Lane {
  BlockState* block;
  Group* group;
  std::byte* frame;
  const Instr* segment;  // instructions from here on are not yet counted
  const Instr* resume;   // where to go on after a barrier or a turn
  std::uint64_t instructions;
  std::uint32_t index;     // in the group
  std::int32_t turn_left;  // backward branches until the scheduler is asked
  std::uint32_t barrier;   // of result barrier; the instruction is the one before resume
  enum class Result : std::uint8_t { exited, barrier, turn, fault } result;
};

enum class Progress {
  finished,   // every lane has exited
  parked,     // every live lane waits at a barrier
  turn,       // ran for a while; others may run, then call again
  few_lanes,  // may_turn_scalar and eight or fewer lanes are live
  fault,
};

// One instruction-set level. The tables of all levels have the same order.
struct Level {
  const OpEntry* const* tables;  // each ends with a null name
  Progress (*run_lockstep)(Group& group, const Instr* code);
  void (*run_lane)(Lane& lane, const Instr* from);
  ScalarFn scalar_guard;  // runs Instr::inner if the guard holds
};

namespace baseline {
extern const Level level;
}
namespace avx2 {
extern const Level level;
}
namespace avx512 {
extern const Level level;
}

// Called when no remembered range fits. Finds the memory behind a global or generic address, and
// remembers its range; null, with the fault recorded, if the lane may not access it.
std::byte* resolve_address(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t address,
                           std::uint32_t bytes, Access access);
// What a read finds that has only its first `inside` bytes in memory: a copy of these, then zeros.
std::byte* read_end(Group& group, const std::byte* from, std::uint64_t inside);
void record_fault(Group& group, const Instr& in, std::uint32_t lane, Fault fault,
                  std::uint64_t address, std::uint32_t bytes);
// Records an access that is misaligned, or outside of its memory.
void record_access(Group& group, const Instr& in, std::uint32_t lane, FaultRecord access);
// vprintf of one lane; `result` is what it returns. False: a fault is recorded.
bool print_text(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t format,
                std::uint64_t arguments, std::int32_t& result);

// malloc and free of one lane. False: a fault is recorded.
std::uint64_t allocate_on_heap(const Group& group, std::uint64_t bytes);
bool free_on_heap(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t address);

}  // namespace ctxbroker::software::exec
