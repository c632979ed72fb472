// SPDX-License-Identifier: Apache-2.0
// The stack of functions that are not expanded in place. It lies in the lane's local memory, above
// the kernel's own: a lane can overwrite its own return addresses, and nobody else's.
#include "exec/level/memory_access.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

// Where in the table of functions an address lies: they are 16 apart. What is between them, and
// what is none of them, comes out as a place beyond every table.
CTXB_OP u64 function_index(u64 address, u64 first) {
  const u64 distance = address - first;
  return distance >> 4 | distance << 60;
}

bool fits(Group& g, const Instr& in, u32 lane, u64 frame) {
  const u64 bytes = static_cast<u64>(in.immediate);
  if (frame <= g.local_bytes && bytes <= g.local_bytes - frame) return true;
  record_fault(g, in, lane, Fault::stack_overflow, frame, 0);
  return false;
}

bool check_lanes(Group& g, const Instr& in, u64 mask) {
  const u64* frames = lanes_at<u64>(g.frame, in.a);
  for (; mask != 0; mask &= mask - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(mask));
    if (!fits(g, in, i, frames[i])) return false;
  }
  return true;
}
const Instr* check_lane(const Instr* in, byte* frame, Lane& l) {
  if (!fits(*l.group, *in, l.index, load<u64>(frame + in->a))) {
    l.result = Lane::Result::fault;
    return nullptr;
  }
  ++in;
  CTXB_NEXT(in, frame, l);
}

// Calls f(number of the value, its width) for the values that a save or load moves.
template <class F>
CTXB_OP void each_saved(const Instr& in, F f) {
  const u64 packed = static_cast<u64>(in.immediate);
  u32 at = 0;
  for (u32 width = 1, shift = saved_area_bits; width <= 8; width *= 2, shift += saved_count_bits) {
    const u32 end = at + static_cast<u32>(packed >> shift & most_saved);
    for (; at < end; ++at) f(at, width);
  }
}

template <bool Save>
void move_lane(const Instr& in, u32 lane, byte* slots, bool scalar, byte* memory) {
  each_saved(in, [&](u32 number, u32 width) {
    byte* slot = slots + in.extra[number] + (scalar ? 0 : lane * width);
    byte* saved = memory + u64{number} * 8;
    switch (width) {
      case 1:
        return Save ? store<u8>(saved, load<u8>(slot)) : store<u8>(slot, load<u8>(saved));
      case 2:
        return Save ? store<u16>(saved, load<u16>(slot)) : store<u16>(slot, load<u16>(saved));
      case 4:
        return Save ? store<u32>(saved, load<u32>(slot)) : store<u32>(slot, load<u32>(saved));
      default:
        return Save ? store<u64>(saved, load<u64>(slot)) : store<u64>(slot, load<u64>(saved));
    }
  });
}

// Where a lane's values are saved. Null, with the fault recorded, if that is outside of the stack:
// a kernel that overwrites a return address comes back with another function's frame.
byte* saved_at(Group& g, const Instr& in, u32 lane, u64 frame) {
  u64 bytes = static_cast<u64>(in.immediate) & ((1ULL << saved_area_bits) - 1);
  const u64 area = bytes;
  each_saved(in, [&](u32, u32) { bytes += 8; });
  if (frame <= g.local_bytes && bytes <= g.local_bytes - frame) {
    return g.local + lane * g.local_stride + frame + area;
  }
  record_fault(g, in, lane, Fault::stack_overflow, frame, 0);
  return nullptr;
}

template <bool Save>
struct Moved {
  static bool lanes(Group& g, const Instr& in, u64 mask) {
    const u64* frames = lanes_at<u64>(g.frame, in.a);
    for (; mask != 0; mask &= mask - 1) {
      const u32 i = static_cast<u32>(__builtin_ctzll(mask));
      byte* const memory = saved_at(g, in, i, frames[i]);
      if (memory == nullptr) return false;
      move_lane<Save>(in, i, g.frame, false, memory);
    }
    return true;
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    byte* const memory = saved_at(*l.group, *in, l.index, load<u64>(frame + in->a));
    if (memory == nullptr) {
      l.result = Lane::Result::fault;
      return nullptr;
    }
    move_lane<Save>(*in, l.index, frame, true, memory);
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

}  // namespace

extern const OpEntry stack_ops[] = {
    pure<function_index>("function.index"),
    {"stack.check", Kind::effect, 0, 1, {8}, nullptr, check_lanes, check_lane},
    {"stack.save", Kind::effect, 0, 1, {8}, nullptr, Moved<true>::lanes, Moved<true>::lane},
    {"stack.load", Kind::effect, 0, 1, {8}, nullptr, Moved<false>::lanes, Moved<false>::lane},
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
