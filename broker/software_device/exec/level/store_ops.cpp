// SPDX-License-Identifier: Apache-2.0
// Stores; the mirror image of loads. Where several lanes write one address, the highest wins.
#include "exec/level/memory_access.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <Where W, class M, class R, u32 N>
struct Store {
  static constexpr u32 bytes = sizeof(M) * N;

  struct Source {
    const R* lanes[N];
  };
  CTXB_OP static Source source(const Group& g, const Instr& in) {
    Source d;
    if constexpr (N == 1) {
      d.lanes[0] = lanes_at<R>(g.frame, in.b);
    } else {
      for (u32 k = 0; k < N; ++k) d.lanes[k] = lanes_at<R>(g.frame, in.extra[k]);
    }
    return d;
  }
  template <u32 Count>
  CTXB_OP static void copy(byte* to, const Source& from, u32 first) {
    _Pragma("GCC ivdep") for (u32 i = 0; i < Count; ++i) {
      for (u32 k = 0; k < N; ++k) {
        put<M>(to + (i * N + k) * sizeof(M), static_cast<M>(from.lanes[k][first + i]));
      }
    }
  }
  CTXB_OP static void one(byte* to, const Source& from, u32 i) {
    for (u32 k = 0; k < N; ++k) put<M>(to + k * sizeof(M), static_cast<M>(from.lanes[k][i]));
  }

  template <class Addresses>
  static bool lanes(Group& g, const Instr& in, u64 mask) {
    const Addresses a(g, in);
    const Source from = source(g, in);
    constexpr bool shared_by_lanes = W == Where::global || W == Where::shared;
    if (shared_by_lanes && mask == all_lanes &&
        a.template form<group_lanes>(0) == Form::contiguous) {
      byte* to = span_at<W, bytes>(g, in, effective<W>(a[0], in), u64{bytes} * group_lanes);
      if (to != nullptr) [[likely]] {
        copy<group_lanes>(to, from, 0);
        return true;
      }
    }
    for (u32 s = 0; s < group_lanes; s += segment_lanes) {
      u32 part = static_cast<u32>(mask >> s) & all_of_segment;
      if (shared_by_lanes && part == all_of_segment &&
          a.template form<segment_lanes>(s) == Form::contiguous) {
        byte* to = span_at<W, bytes>(g, in, effective<W>(a[s], in), u64{bytes} * segment_lanes);
        if (to != nullptr) {
          copy<segment_lanes>(to, from, s);
          continue;
        }
      }
      for (; part != 0; part &= part - 1) {
        const u32 i = s + static_cast<u32>(__builtin_ctz(part));
        byte* to = lane_at<W, bytes>(g, in, i, effective<W>(a[i], in));
        if (to == nullptr) [[unlikely]] {
          return false;
        }
        one(to, from, i);
      }
    }
    return true;
  }

  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    const u64 address = effective<W>(load<Address<W>>(frame + in->a), *in);
    byte* to = lane_at<W, bytes>(*l.group, *in, l.index, address);
    if (to == nullptr) [[unlikely]] {
      l.result = Lane::Result::fault;
      return nullptr;
    }
    if constexpr (N == 1) {
      put<M>(to, static_cast<M>(load<R>(frame + in->b)));
    } else {
      for (u32 k = 0; k < N; ++k) {
        put<M>(to + k * sizeof(M), static_cast<M>(load<R>(frame + in->extra[k])));
      }
    }
    ++in;
    CTXB_NEXT(in, frame, l);
  }

  static constexpr OpEntry entry(const char* name) {
    OpEntry entry{name,
                  Kind::effect,
                  0,
                  N == 1 ? 2 : 1,
                  {sizeof(Address<W>), sizeof(R)},
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

#define CTXB_STORE_N(where, memory, reg, n) \
  Store<Where::where, memory, reg, n>::entry("st." #where "." #memory ".v" #n)
#define CTXB_STORE(where, memory, reg)                                      \
  CTXB_STORE_N(where, memory, reg, 1), CTXB_STORE_N(where, memory, reg, 2), \
      CTXB_STORE_N(where, memory, reg, 4)
#define CTXB_STORES(where)                                                              \
  CTXB_STORE(where, u8, u16), CTXB_STORE(where, u16, u16), CTXB_STORE(where, u32, u32), \
      CTXB_STORE_N(where, u64, u64, 1), CTXB_STORE_N(where, u64, u64, 2)

extern const OpEntry store_ops[] = {
    CTXB_STORES(global),
    CTXB_STORES(shared),
    CTXB_STORES(local),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
