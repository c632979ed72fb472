// SPDX-License-Identifier: Apache-2.0
// Loads. Neighbouring lanes that read neighbouring elements become block copies, lanes that read
// the same element a broadcast; everything else goes lane by lane.
#include "exec/level/memory_access.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

// M: type in memory; R: of the register; N: elements of the vector.
template <Where W, class M, class R, u32 N>
struct Load {
  static constexpr u32 bytes = sizeof(M) * N;

  struct Destination {
    R* lanes[N];
  };
  CTXB_OP static Destination destination(const Group& g, const Instr& in) {
    Destination d;
    if constexpr (N == 1) {
      d.lanes[0] = lanes_at<R>(g.frame + in.dst);
    } else {
      for (u32 k = 0; k < N; ++k) d.lanes[k] = lanes_at<R>(g.frame + in.extra[k]);
    }
    return d;
  }

  template <u32 Count>
  CTXB_OP static void copy(const Destination& d, u32 first, const byte* from) {
    for (u32 k = 0; k < N; ++k) {
      R* to = d.lanes[k] + first;
      _Pragma("GCC ivdep") for (u32 i = 0; i < Count; ++i) {
        to[i] = static_cast<R>(fetch<M>(from + (i * N + k) * sizeof(M)));
      }
    }
  }
  template <u32 Count>
  CTXB_OP static void broadcast(const Destination& d, u32 first, const byte* from) {
    for (u32 k = 0; k < N; ++k) {
      const R value = static_cast<R>(fetch<M>(from + k * sizeof(M)));
      R* to = d.lanes[k] + first;
      for (u32 i = 0; i < Count; ++i) to[i] = value;
    }
  }
  CTXB_OP static void one(const Destination& d, u32 i, const byte* from) {
    for (u32 k = 0; k < N; ++k) d.lanes[k][i] = static_cast<R>(fetch<M>(from + k * sizeof(M)));
  }

  // Count lanes from lane s on, all of them active. False: each lane has to be done by itself.
  template <u32 Count, class Addresses>
  CTXB_OP static bool together(Group& g, const Instr& in, const Destination& d, const Addresses& a,
                               u32 s) {
    const Form form = a.template form<Count>(s);
    if (form == Form::irregular) return false;
    const u64 first = effective<W>(a[s], in);
    const bool uniform = form == Form::uniform;
    const byte* from = span_at<W, bytes>(g, in, first, uniform ? bytes : bytes * Count);
    if (from == nullptr) return false;
    if (uniform) {
      broadcast<Count>(d, s, from);
    } else {
      copy<Count>(d, s, from);
    }
    return true;
  }

  template <class Addresses>
  static bool lanes(Group& g, const Instr& in, u64 mask) {
    const Addresses a(g, in);
    const Destination d = destination(g, in);
    constexpr bool shared_by_lanes = W == Where::global || W == Where::shared;
    if (shared_by_lanes && mask == all_lanes && together<group_lanes>(g, in, d, a, 0)) return true;
    for (u32 s = 0; s < group_lanes; s += segment_lanes) {
      if (shared_by_lanes && s % warp_lanes == 0 && (mask >> s & all_of_warp) == all_of_warp &&
          together<warp_lanes>(g, in, d, a, s)) {
        s += segment_lanes;
        continue;
      }
      u32 part = static_cast<u32>(mask >> s) & all_of_segment;
      if (shared_by_lanes && part == all_of_segment && together<segment_lanes>(g, in, d, a, s)) {
        continue;
      }
      for (; part != 0; part &= part - 1) {
        const u32 i = s + static_cast<u32>(__builtin_ctz(part));
        const byte* from = lane_at<W, bytes, Access::read>(g, in, i, effective<W>(a[i], in));
        if (from == nullptr) [[unlikely]] {
          return false;
        }
        one(d, i, from);
      }
    }
    return true;
  }

  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    const u64 address = effective<W>(load<Address<W>>(frame + in->a), *in);
    const byte* from = lane_at<W, bytes, Access::read>(*l.group, *in, l.index, address);
    if (from == nullptr) [[unlikely]] {
      l.result = Lane::Result::fault;
      return nullptr;
    }
    if constexpr (N == 1) {
      store<R>(frame + in->dst, static_cast<R>(fetch<M>(from)));
    } else {
      for (u32 k = 0; k < N; ++k) {
        store<R>(frame + in->extra[k], static_cast<R>(fetch<M>(from + k * sizeof(M))));
      }
    }
    ++in;
    CTXB_NEXT(in, frame, l);
  }

  static constexpr OpEntry entry(const char* name) {
    OpEntry entry{name,
                  Kind::effect,
                  N == 1 ? sizeof(R) : 0,
                  1,
                  {sizeof(Address<W>)},
                  nullptr,
                  lanes<AnyAddresses<W, bytes>>,
                  lane};
    if constexpr (W == Where::global) {
      entry.row = lanes<RowOfAddresses<bytes>>;
      entry.row_bytes = bytes;
    }
    return entry;
  }
};

}  // namespace

#define CTXB_LOAD_N(where, memory, reg, n) \
  Load<Where::where, memory, reg, n>::entry("ld." #where "." #memory ".v" #n)
#define CTXB_LOAD(where, memory, reg)                                     \
  CTXB_LOAD_N(where, memory, reg, 1), CTXB_LOAD_N(where, memory, reg, 2), \
      CTXB_LOAD_N(where, memory, reg, 4)
#define CTXB_LOADS(where)                                                           \
  CTXB_LOAD(where, u8, u16), CTXB_LOAD(where, s8, u16), CTXB_LOAD(where, u16, u16), \
      CTXB_LOAD(where, u32, u32), CTXB_LOAD_N(where, u64, u64, 1), CTXB_LOAD_N(where, u64, u64, 2)

extern const OpEntry load_ops[] = {
    CTXB_LOADS(global), CTXB_LOADS(shared), CTXB_LOADS(local), CTXB_LOADS(param), end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
