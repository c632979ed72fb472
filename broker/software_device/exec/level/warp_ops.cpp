// SPDX-License-Identifier: Apache-2.0
// Operations across the two warps of 32 lanes that a group holds. Only the lockstep engine can run
// them; a kernel that has one never goes to the scalar engine.
#include "exec/level/masks.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

constexpr u32 warp_lanes = 32;

// Calls f(first lane, active lanes of the warp, as bits 0 to 31) for each warp with active lanes.
template <class F>
CTXB_OP void each_warp(u64 mask, F f) {
  for (u32 first = 0; first < group_lanes; first += warp_lanes) {
    const u32 active = static_cast<u32>(mask >> first);
    if (active != 0) f(first, active);
  }
}
template <class F>
CTXB_OP void each_lane(u32 active, F f) {
  for (; active != 0; active &= active - 1) f(static_cast<u32>(__builtin_ctz(active)));
}

// Returns the lanes of a warp, as bits, whose value is `value`.
CTXB_OP u32 lanes_with(const u32* values, u32 value) {
  u32 same = 0;
  for (u32 i = 0; i < warp_lanes; ++i) same |= static_cast<u32>(values[i] == value) << i;
  return same;
}

// Calls f(first lane of the warp, lanes that work together) for each group of active lanes: those
// that name each other with one member mask, or all of a warp if the instruction has no mask. A
// lane that its own mask leaves out is on its own. f may write no lane but those of its group,
// because the destination may be where the masks are.
template <class F>
CTXB_OP void each_group(const Group& g, const Instr& in, u64 mask, F f) {
  each_warp(mask, [&](u32 first, u32 active) {
    if (in.d == no_offset) return f(first, active);
    const u32* members = lanes_at<u32>(g.frame, in.d) + first;
    while (active != 0) {
      const u32 named = members[__builtin_ctz(active)];
      const u32 same = lanes_with(members, named) & active;
      if ((same & named) != 0) f(first, same & named);
      each_lane(same & ~named, [&](u32 i) { f(first, 1U << i); });
      active &= ~same;
    }
  });
}

enum class Shuffle { up, down, bfly, idx };

// A lane whose source does not take part, because it is not active or has exited, gets 0.
template <Shuffle Mode>
bool shuffle(Group& g, const Instr& in, u64 mask) {
  u32 values[group_lanes];
  __builtin_memcpy(values, g.frame + in.a, sizeof(values));
  const u32* by = lanes_at<u32>(g.frame, in.b);
  const u32* bounds = lanes_at<u32>(g.frame, in.c);
  u32* d = lanes_at<u32>(g.frame + in.dst);
  Pred* in_range = in.extra != nullptr ? lanes_at<Pred>(g.frame + in.extra[0]) : nullptr;
  for (u64 left = mask; left != 0; left &= left - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(left));
    const u32 lane = i % warp_lanes, b = by[i] & 31;
    const u32 clamp = bounds[i] & 31, segment = bounds[i] >> 8 & 31;
    const u32 last = (lane & segment) | (clamp & ~segment);
    u32 from = 0;
    bool valid = false;
    if constexpr (Mode == Shuffle::up) {
      from = lane - b;
      valid = static_cast<s32>(from) >= static_cast<s32>(last);
    } else {
      from = Mode == Shuffle::down   ? lane + b
             : Mode == Shuffle::bfly ? lane ^ b
                                     : ((lane & segment) | (b & ~segment));
      valid = from <= last;
    }
    const u32 source = (i & warp_lanes) + (valid ? from & 31 : lane);
    d[i] = (mask >> source & 1) != 0 ? values[source] : 0;
    if (in_range != nullptr) in_range[i] = valid;
  }
  return true;
}

enum class Vote { all, any, uni, ballot };

template <Vote Mode>
bool vote(Group& g, const Instr& in, u64 mask) {
  const u64 holds = predicate_mask(g.frame + in.a);
  each_group(g, in, mask, [&](u32 first, u32 active) {
    const u32 yes = static_cast<u32>(holds >> first) & active;
    each_lane(active, [&](u32 i) {
      if constexpr (Mode == Vote::ballot) {
        lanes_at<u32>(g.frame + in.dst)[first + i] = yes;
      } else {
        lanes_at<Pred>(g.frame + in.dst)[first + i] = Mode == Vote::all ? yes == active
                                                      : Mode == Vote::any
                                                          ? yes != 0
                                                          : yes == active || yes == 0;
      }
    });
  });
  return true;
}

bool activemask(Group& g, const Instr& in, u64 mask) {
  u32* d = lanes_at<u32>(g.frame + in.dst);
  each_warp(mask, [&](u32 first, u32 active) {
    each_lane(active, [&](u32 i) { d[first + i] = active; });
  });
  return true;
}

template <class T>
bool match_any(Group& g, const Instr& in, u64 mask) {
  const T* a = lanes_at<T>(g.frame, in.a);
  u32 result[group_lanes] = {};
  each_group(g, in, mask, [&](u32 first, u32 active) {
    each_lane(active, [&](u32 i) {
      each_lane(active, [&](u32 k) {
        result[first + i] |= static_cast<u32>(a[first + i] == a[first + k]) << k;
      });
    });
  });
  u32* d = lanes_at<u32>(g.frame + in.dst);
  for (u64 left = mask; left != 0; left &= left - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(left));
    d[i] = result[i];
  }
  return true;
}
template <class T>
bool match_all(Group& g, const Instr& in, u64 mask) {
  const T* a = lanes_at<T>(g.frame, in.a);
  Pred* same = in.extra != nullptr ? lanes_at<Pred>(g.frame + in.extra[0]) : nullptr;
  each_group(g, in, mask, [&](u32 first, u32 active) {
    const T wanted = a[first + static_cast<u32>(__builtin_ctz(active))];
    bool equal = true;
    each_lane(active, [&](u32 i) { equal = equal && a[first + i] == wanted; });
    each_lane(active, [&](u32 i) {
      lanes_at<u32>(g.frame + in.dst)[first + i] = equal ? active : 0;
      if (same != nullptr) same[first + i] = equal;
    });
  });
  return true;
}

template <class T>
CTXB_OP T sum(T a, T b) {
  return a + b;
}
template <class T>
CTXB_OP T least(T a, T b) {
  return a < b ? a : b;
}
template <class T>
CTXB_OP T most(T a, T b) {
  return a > b ? a : b;
}
CTXB_OP u32 both(u32 a, u32 b) {
  return a & b;
}
CTXB_OP u32 either(u32 a, u32 b) {
  return a | b;
}
CTXB_OP u32 parity(u32 a, u32 b) {
  return a ^ b;
}

template <class T, T (*F)(T, T)>
bool reduce(Group& g, const Instr& in, u64 mask) {
  const T* a = lanes_at<T>(g.frame, in.a);
  each_group(g, in, mask, [&](u32 first, u32 active) {
    T total = a[first + static_cast<u32>(__builtin_ctz(active))];
    each_lane(active & (active - 1), [&](u32 i) { total = F(total, a[first + i]); });
    each_lane(active, [&](u32 i) { lanes_at<T>(g.frame + in.dst)[first + i] = total; });
  });
  return true;
}

bool meet(Group&, const Instr&, u64) {
  return true;
}

constexpr OpEntry warp(const char* name, std::uint8_t width, std::uint8_t source, EffectFn f) {
  return {name, Kind::converge, width, 1, {source}, nullptr, f, nullptr};
}
constexpr OpEntry shuffle_entry(const char* name, EffectFn f) {
  return {name, Kind::converge, 4, 4, {4, 4, 4, 4}, nullptr, f, nullptr};
}

}  // namespace

extern const OpEntry warp_ops[] = {
    shuffle_entry("shfl.up", shuffle<Shuffle::up>),
    shuffle_entry("shfl.down", shuffle<Shuffle::down>),
    shuffle_entry("shfl.bfly", shuffle<Shuffle::bfly>),
    shuffle_entry("shfl.idx", shuffle<Shuffle::idx>),
    warp("vote.all", 1, 1, vote<Vote::all>),
    warp("vote.any", 1, 1, vote<Vote::any>),
    warp("vote.uni", 1, 1, vote<Vote::uni>),
    warp("vote.ballot", 4, 1, vote<Vote::ballot>),
    {"activemask", Kind::converge, 4, 0, {}, nullptr, activemask, nullptr},
    warp("match.any.b32", 4, 4, match_any<u32>),
    warp("match.any.b64", 4, 8, match_any<u64>),
    warp("match.all.b32", 4, 4, match_all<u32>),
    warp("match.all.b64", 4, 8, match_all<u64>),
    warp("redux.add", 4, 4, reduce<u32, sum<u32>>),
    warp("redux.min.u32", 4, 4, reduce<u32, least<u32>>),
    warp("redux.min.s32", 4, 4, reduce<s32, least<s32>>),
    warp("redux.max.u32", 4, 4, reduce<u32, most<u32>>),
    warp("redux.max.s32", 4, 4, reduce<s32, most<s32>>),
    warp("redux.and", 4, 4, reduce<u32, both>),
    warp("redux.or", 4, 4, reduce<u32, either>),
    warp("redux.xor", 4, 4, reduce<u32, parity>),
    {"warp.sync", Kind::converge, 0, 0, {}, nullptr, meet, nullptr},
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
