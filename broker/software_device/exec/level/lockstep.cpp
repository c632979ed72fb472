// SPDX-License-Identifier: Apache-2.0
// The lockstep engine: one fragment of a group runs at a time, always the one at the lowest
// instruction, so that lanes that parted meet again where their paths join.
#include "exec/level/masks.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

constexpr u32 no_limit = ~0U;
constexpr u32 few = 8;  // live lanes up to which the scalar engine is faster

void add_ready(Group& g, u32 pc, u64 mask) {
  for (u32 i = 0; i < g.ready_count; ++i) {
    if (g.ready[i].pc == pc) {
      g.ready[i].mask |= mask;
      g.held &= ~g.ready[i].mask;  // these may be the lanes that it waits for
      return;
    }
  }
  g.ready[g.ready_count++] = {pc, mask};
}

Fragment take(Group& g, u32 index) {
  const Fragment chosen = g.ready[index];
  g.ready[index] = g.ready[--g.ready_count];
  return chosen;
}

// Lanes that jump to the kernel's end, as those beyond the data do first of all, need not wait
// there for the others: the fewer live, the sooner the scalar engine takes over.
void add_ready_or_exit(Group& g, const Instr* code, u32 pc, u64 mask) {
  if (code[pc].kind == Kind::exit && code[pc].guard == no_offset) {
    g.block->instructions += count_lanes(mask);
    g.live &= ~mask;
  } else {
    add_ready(g, pc, mask);
  }
}

// Where the running fragment meets the next one.
u32 limit_from(const Group& g, u32 pc) {
  u32 limit = no_limit;
  for (u32 i = 0; i < g.ready_count; ++i) {
    if (g.ready[i].pc >= pc && g.ready[i].pc < limit) limit = g.ready[i].pc;
  }
  return limit;
}

bool lower_waits(const Group& g, u32 pc) {
  for (u32 i = 0; i < g.ready_count; ++i) {
    if (g.ready[i].pc < pc && (g.ready[i].mask & g.held) == 0) return true;
  }
  return false;
}

// Lanes with one barrier number arrive together.
bool arrive(Group& g, const Instr& in, u32 pc, u64 mask) {
  const auto mode = static_cast<BarrierMode>(in.immediate);
  const u32* number = lanes_at<u32>(g.frame, in.a);
  while (mask != 0) {
    const u32 first = static_cast<u32>(__builtin_ctzll(mask));
    const u32 id = number[first];
    if (id >= barrier_count) {
      record_fault(g, in, first, Fault::trap, id, 0);
      return false;
    }
    u64 same = 0;
    for (u32 i = first; i < group_lanes; ++i) same |= static_cast<u64>(number[i] == id) << i;
    same &= mask;
    Barrier& barrier = g.block->barriers[id];
    barrier.arrived += count_lanes(same);
    barrier.expected = in.b == no_offset ? 0 : lanes_at<u32>(g.frame, in.b)[first];
    if (in.c != no_offset) barrier.votes += count_lanes(same & predicate_mask(g.frame + in.c));
    if (mode != BarrierMode::arrive) g.parked[g.parked_count++] = {pc + 1, same, id, &in};
    mask &= ~same;
  }
  return true;
}

// Returns those of a fragment's active lanes that wait: a lane of their warp that they name can
// still come here.
u64 waiting(const Group& g, const Instr& in, u64 fragment, u64 active) {
  u64 elsewhere = 0;
  for (u32 i = 0; i < g.ready_count; ++i) elsewhere |= g.ready[i].mask;
  elsewhere &= ~fragment;
  if (elsewhere == 0 || in.d == no_offset) return 0;
  const u32* members = lanes_at<u32>(g.frame, in.d);
  u64 wait = 0;
  for (u64 left = active; left != 0; left &= left - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(left));
    const bool lacks = (static_cast<u64>(members[i]) << (i & 32) & elsewhere) != 0;
    wait |= static_cast<u64>(lacks) << i;
  }
  return wait;
}

u64 guarded(const Group& g, const Instr& in, u64 mask) {
  if (in.guard == no_offset) return mask;
  const u64 holds = predicate_mask(g.frame + in.guard);
  return mask & (in.guard_negated ? ~holds : holds);
}

enum class Pressure {
  none,      // wait together, even if only some have to
  divide,    // those that need not wait go on
  together,  // go on with whom it has: every lane waits for one that waits elsewhere
};
struct Choice {
  u32 index;
  Pressure pressure;
};

// The lowest fragment that does not wait for its warp. If all do, the lowest with lanes that need
// not; else the lowest.
Choice lowest(const Group& g, const Instr* code) {
  u32 best = no_limit, freed = no_limit, held = no_limit;
  const auto take_lower = [&g](u32& candidate, u32 i) {
    if (candidate == no_limit || g.ready[i].pc < g.ready[candidate].pc) candidate = i;
  };
  for (u32 i = 0; i < g.ready_count; ++i) {
    take_lower((g.ready[i].mask & g.held) != 0 ? held : best, i);
  }
  if (best != no_limit) return {best, Pressure::none};
  for (u32 i = 0; i < g.ready_count; ++i) {
    const Instr& in = code[g.ready[i].pc];
    const u64 active = guarded(g, in, g.ready[i].mask);
    if (waiting(g, in, g.ready[i].mask, active) != active) take_lower(freed, i);
  }
  return freed != no_limit ? Choice{freed, Pressure::divide} : Choice{held, Pressure::together};
}

// Each lane goes on at the place of the table that its operand names. False: a fault is recorded.
bool jump(Group& g, const Instr& in, u64 mask) {
  const u64* index = lanes_at<u64>(g.frame, in.a);
  while (mask != 0) {
    const u32 first = static_cast<u32>(__builtin_ctzll(mask));
    const u64 wanted = index[first];
    if (wanted >= static_cast<u64>(in.immediate) || in.extra[wanted] == no_target) {
      record_fault(g, in, first, Fault::invalid_pc, lanes_at<u64>(g.frame, in.b)[first], 0);
      return false;
    }
    u64 same = 0;
    for (u32 i = first; i < group_lanes; ++i) same |= static_cast<u64>(index[i] == wanted) << i;
    same &= mask;
    add_ready(g, in.extra[wanted], same);
    mask &= ~same;
  }
  return true;
}

}  // namespace

Progress run_lockstep(Group& g, const Instr* code) {
  BlockState& block = *g.block;
  byte* const frame = g.frame;
  s32 left = g.turn_length;
  bool rotating = g.turn % 2 == 1 && g.ready_count > 1;
  for (;;) {
    if (g.ready_count == 0) return g.live == 0 ? Progress::finished : Progress::parked;
    const Choice choice =
        rotating ? Choice{g.turn / 2 % g.ready_count, Pressure::divide} : lowest(g, code);
    const Fragment chosen = take(g, choice.index);
    Pressure pressure = choice.pressure;
    g.held &= ~chosen.mask;
    u32 pc = chosen.pc, start = pc;
    u64 mask = chosen.mask;
    u32 limit = limit_from(g, pc);
    bool whole = mask == g.live;
    for (;;) {
      if (pc == limit) {
        block.instructions += static_cast<u64>(pc - start) * count_lanes(mask);
        for (u32 i = 0; i < g.ready_count; ++i) {
          if (g.ready[i].pc == pc) mask |= take(g, i--).mask;
        }
        g.held &= ~mask;
        start = pc;
        limit = limit_from(g, pc);
        whole = mask == g.live;
      }
      const Instr& in = code[pc];
      u64 active = mask;
      if (in.guard != no_offset) {
        const u64 holds = predicate_mask(frame + in.guard);
        active &= in.guard_negated ? ~holds : holds;
        if (active == 0) {
          ++pc;
          continue;
        }
      }
      if (in.kind == Kind::pure) [[likely]] {
        if (whole && active == mask) {
          // Lanes that have exited may be overwritten: nobody reads them any more.
          in.pure(frame + in.dst, frame, in);
        } else {
          in.pure(g.scratch, frame, in);
          blend(frame + in.dst, g.scratch, active, in.width);
        }
        ++pc;
        continue;
      }
      if (in.kind == Kind::effect) {
        if (!in.effect(g, in, active)) [[unlikely]] {
          return Progress::fault;
        }
        ++pc;
        continue;
      }
      if (in.kind == Kind::converge) {
        const u64 wait = waiting(g, in, mask, active);
        const Pressure pressed = pressure;
        pressure = Pressure::none;
        if (wait != 0 && pressed != Pressure::together) [[unlikely]] {
          block.instructions += static_cast<u64>(pc - start) * count_lanes(mask);
          const u64 stay = pressed == Pressure::divide ? wait : mask;
          add_ready(g, pc, stay);
          g.held |= stay;
          mask &= ~stay;
          active &= ~stay;
          if (mask == 0) break;
          start = pc;
          whole = false;
          if (active == 0) {
            ++pc;
            continue;
          }
        }
        if (!in.effect(g, in, active)) return Progress::fault;
        ++pc;
        continue;
      }
      block.instructions += static_cast<u64>(pc + 1 - start) * count_lanes(mask);
      if (in.kind == Kind::branch) {
        const u32 from = pc, target = static_cast<u32>(in.immediate);
        if (active == mask) {
          pc = target;
        } else {
          const u64 rest = mask & ~active;
          const bool taken_first = target < pc + 1;
          add_ready_or_exit(g, code, taken_first ? pc + 1 : target, taken_first ? rest : active);
          pc = taken_first ? target : pc + 1;
          mask = taken_first ? active : rest;
          whole = mask == g.live;
        }
        start = pc;
        if (target <= from && --left <= 0) {
          add_ready(g, pc, mask);
          g.turn = g.ready_count > 1 ? g.turn + 1 : 0;
          return Progress::turn;
        }
        if (g.ready_count != 0) {
          if (!rotating && lower_waits(g, pc)) {
            add_ready(g, pc, mask);
            break;
          }
          limit = limit_from(g, pc);
        }
        if (target <= from && g.may_turn_scalar && count_lanes(g.live) <= few) {
          add_ready(g, pc, mask);
          return Progress::few_lanes;
        }
        continue;
      }
      if (in.kind == Kind::jump) {
        if (!jump(g, in, active)) return Progress::fault;
        if (--left <= 0) {
          g.turn = g.ready_count > 1 ? g.turn + 1 : 0;
          return Progress::turn;
        }
        if (g.may_turn_scalar && count_lanes(g.live) <= few) return Progress::few_lanes;
        break;
      }
      if (in.kind == Kind::exit) {
        g.live &= ~active;
      } else {
        if (!arrive(g, in, pc, active)) return Progress::fault;
        if (static_cast<BarrierMode>(in.immediate) == BarrierMode::arrive) active = 0;
      }
      mask &= ~active;
      if (mask == 0) break;
      start = ++pc;
      whole = mask == g.live;
    }
    rotating = false;
  }
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
