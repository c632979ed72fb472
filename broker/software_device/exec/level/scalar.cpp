// SPDX-License-Identifier: Apache-2.0
// The scalar engine: one lane at a time, each operation jumping to the next. Also the operations
// that steer both engines.
#ifdef __SSE2__
#include <xmmintrin.h>
#endif
#include <time.h>

#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

CTXB_OP bool guard_holds(const Instr* in, const byte* frame) {
  return in->guard == no_offset ||
         (load<Pred>(frame + in->guard) != 0) != static_cast<bool>(in->guard_negated);
}

CTXB_OP void count_to(const Instr* in, Lane& l) {
  l.instructions += static_cast<u64>(in - l.segment) + 1;
}

const Instr* branch(const Instr* in, byte* frame, Lane& l) {
  if (!guard_holds(in, frame)) {
    ++in;
    CTXB_NEXT(in, frame, l);
  }
  const Instr* to = in->target;
  count_to(in, l);
  l.segment = to;
  if (to <= in && --l.turn_left <= 0) [[unlikely]] {
    l.resume = to;
    l.result = Lane::Result::turn;
    return nullptr;
  }
  CTXB_NEXT(to, frame, l);
}

const Instr* jump(const Instr* in, byte* frame, Lane& l) {
  const u64 wanted = load<u64>(frame + in->a);
  if (wanted >= static_cast<u64>(in->immediate) || in->extra[wanted] == no_target) {
    record_fault(*l.group, *in, l.index, Fault::invalid_pc, load<u64>(frame + in->b), 0);
    l.result = Lane::Result::fault;
    return nullptr;
  }
  const Instr* to = in->target + in->extra[wanted];
  count_to(in, l);
  l.segment = to;
  if (--l.turn_left <= 0) [[unlikely]] {
    l.resume = to;
    l.result = Lane::Result::turn;
    return nullptr;
  }
  CTXB_NEXT(to, frame, l);
}

const Instr* exit(const Instr* in, byte* frame, Lane& l) {
  if (!guard_holds(in, frame)) {
    ++in;
    CTXB_NEXT(in, frame, l);
  }
  count_to(in, l);
  l.result = Lane::Result::exited;
  return nullptr;
}

const Instr* barrier(const Instr* in, byte* frame, Lane& l) {
  if (!guard_holds(in, frame)) {
    ++in;
    CTXB_NEXT(in, frame, l);
  }
  const u32 id = load<u32>(frame + in->a);
  if (id >= barrier_count) {
    record_fault(*l.group, *in, l.index, Fault::trap, id, 0);
    l.result = Lane::Result::fault;
    return nullptr;
  }
  Barrier& at = l.block->barriers[id];
  at.arrived += 1;
  at.expected = in->b == no_offset ? 0 : load<u32>(frame + in->b);
  if (in->c != no_offset) at.votes += load<Pred>(frame + in->c);
  if (static_cast<BarrierMode>(in->immediate) == BarrierMode::arrive) {
    ++in;
    CTXB_NEXT(in, frame, l);
  }
  count_to(in, l);
  l.barrier = id;
  l.resume = in + 1;
  l.result = Lane::Result::barrier;
  return nullptr;
}

// The rounding mode of the processor, for the one instruction that follows. It sits between calls
// through pointers, which no compiler moves arithmetic across.
void set_mode([[maybe_unused]] s64 mode) {
#ifdef __SSE2__
  _mm_setcsr((_mm_getcsr() & ~0x6000U) | static_cast<u32>(mode));
#endif
}
bool rounding_lanes(Group&, const Instr& in, u64) {
  set_mode(in.immediate);
  return true;
}
const Instr* rounding_lane(const Instr* in, byte* frame, Lane& l) {
  set_mode(in->immediate);
  ++in;
  CTXB_NEXT(in, frame, l);
}

bool trap_lanes(Group& g, const Instr& in, u64 mask) {
  record_fault(g, in, static_cast<u32>(__builtin_ctzll(mask)), Fault::trap, 0, 0);
  return false;
}
const Instr* trap_lane(const Instr* in, byte*, Lane& l) {
  record_fault(*l.group, *in, l.index, Fault::trap, 0, 0);
  l.result = Lane::Result::fault;
  return nullptr;
}

// Operands: the expression's text, the file's, the line, the function's text.
void record_assertion(Group& g, const Instr& in, u32 lane, const AssertionRecord& assertion) {
  record_fault(g, in, lane, Fault::assertion, 0, 0);
  g.block->fault.assertion = assertion;
}
bool assert_lanes(Group& g, const Instr& in, u64 mask) {
  const u32 i = static_cast<u32>(__builtin_ctzll(mask));
  record_assertion(g, in, i,
                   {lanes_at<u64>(g.frame, in.a)[i], lanes_at<u64>(g.frame, in.b)[i],
                    lanes_at<u64>(g.frame, in.d)[i], lanes_at<u32>(g.frame, in.c)[i]});
  return false;
}
const Instr* assert_lane(const Instr* in, byte* frame, Lane& l) {
  record_assertion(*l.group, *in, l.index,
                   {load<u64>(frame + in->a), load<u64>(frame + in->b), load<u64>(frame + in->d),
                    load<u32>(frame + in->c)});
  l.result = Lane::Result::fault;
  return nullptr;
}

// Operands: the format, the arguments.
bool print_lanes(Group& g, const Instr& in, u64 mask) {
  const u64* formats = lanes_at<u64>(g.frame, in.a);
  const u64* arguments = lanes_at<u64>(g.frame, in.b);
  s32* results = lanes_at<s32>(g.frame + in.dst);
  for (; mask != 0; mask &= mask - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(mask));
    if (!print_text(g, in, i, formats[i], arguments[i], results[i])) return false;
  }
  return true;
}
const Instr* print_lane(const Instr* in, byte* frame, Lane& l) {
  s32 result = 0;
  if (!print_text(*l.group, *in, l.index, load<u64>(frame + in->a), load<u64>(frame + in->b),
                  result)) {
    l.result = Lane::Result::fault;
    return nullptr;
  }
  store<s32>(frame + in->dst, result);
  ++in;
  CTXB_NEXT(in, frame, l);
}

// Operand: the bytes.
bool allocate_lanes(Group& g, const Instr& in, u64 mask) {
  const u64* bytes = lanes_at<u64>(g.frame, in.a);
  u64* addresses = lanes_at<u64>(g.frame + in.dst);
  for (; mask != 0; mask &= mask - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(mask));
    addresses[i] = allocate_on_heap(g, bytes[i]);
  }
  return true;
}
const Instr* allocate_lane(const Instr* in, byte* frame, Lane& l) {
  store<u64>(frame + in->dst, allocate_on_heap(*l.group, load<u64>(frame + in->a)));
  ++in;
  CTXB_NEXT(in, frame, l);
}

// Operand: the address.
bool free_lanes(Group& g, const Instr& in, u64 mask) {
  const u64* addresses = lanes_at<u64>(g.frame, in.a);
  for (; mask != 0; mask &= mask - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(mask));
    if (!free_on_heap(g, in, i, addresses[i])) return false;
  }
  return true;
}
const Instr* free_lane(const Instr* in, byte* frame, Lane& l) {
  if (!free_on_heap(*l.group, *in, l.index, load<u64>(frame + in->a))) {
    l.result = Lane::Result::fault;
    return nullptr;
  }
  ++in;
  CTXB_NEXT(in, frame, l);
}

void fence() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not see fences; all that pass through one variable are ordered all the
  // same.
  static u32 everyone = 0;
  __atomic_fetch_add(&everyone, 1, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
bool fence_lanes(Group&, const Instr&, u64) {
  fence();
  return true;
}
const Instr* fence_lane(const Instr* in, byte* frame, Lane& l) {
  fence();
  ++in;
  CTXB_NEXT(in, frame, l);
}

u64 cycles() {
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  return static_cast<u64>(__builtin_readcyclecounter());
#endif
}
CTXB_OP u32 clock_32() {
  return static_cast<u32>(cycles());
}
CTXB_OP u32 clock_hi() {
  return static_cast<u32>(cycles() >> 32);
}
CTXB_OP u64 clock_64() {
  return cycles();
}

u64 nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
}
CTXB_OP u32 timer_32() {
  return static_cast<u32>(nanoseconds());
}
CTXB_OP u32 timer_hi() {
  return static_cast<u32>(nanoseconds() >> 32);
}
CTXB_OP u64 timer_64() {
  return nanoseconds();
}

// The real address of this lane's local memory, for cvta.local.
struct LocalBase {
  static bool lanes(Group& g, const Instr& in, u64 mask) {
    const u64* a = lanes_at<u64>(g.frame, in.a);
    u64* d = lanes_at<u64>(g.frame + in.dst);
    for (; mask != 0; mask &= mask - 1) {
      const u32 i = static_cast<u32>(__builtin_ctzll(mask));
      d[i] = a[i] + base(g, i) * static_cast<u64>(in.immediate);
    }
    return true;
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<u64>(frame + in->dst, load<u64>(frame + in->a) +
                                    base(*l.group, l.index) * static_cast<u64>(in->immediate));
    ++in;
    CTXB_NEXT(in, frame, l);
  }
  CTXB_OP static u64 base(const Group& g, u32 lane) {
    return reinterpret_cast<u64>(g.local) + lane * g.local_stride;
  }
};

}  // namespace

// Runs a guarded operation whose own function knows nothing of guards.
const Instr* scalar_guard(const Instr* in, byte* frame, Lane& l) {
  if (guard_holds(in, frame)) return in->inner(in, frame, l);
  ++in;
  CTXB_NEXT(in, frame, l);
}

void run_lane(Lane& l, const Instr* from) {
  l.segment = from;
  const Instr* in = from;
  while (in != nullptr) in = in->scalar(in, l.frame, l);
}

extern const OpEntry control_ops[] = {
    {"bra", Kind::branch, 0, 0, {}, nullptr, nullptr, branch},
    {"jump", Kind::jump, 0, 2, {8, 8}, nullptr, nullptr, jump},
    {"exit", Kind::exit, 0, 0, {}, nullptr, nullptr, exit},
    {"barrier", Kind::barrier, 0, 0, {}, nullptr, nullptr, barrier},
    {"set_rounding", Kind::effect, 0, 0, {}, nullptr, rounding_lanes, rounding_lane},
    {"trap", Kind::effect, 0, 0, {}, nullptr, trap_lanes, trap_lane},
    {"assert", Kind::effect, 0, 4, {8, 8, 4, 8}, nullptr, assert_lanes, assert_lane},
    {"print", Kind::effect, 4, 2, {8, 8}, nullptr, print_lanes, print_lane},
    {"heap.allocate", Kind::effect, 8, 1, {8}, nullptr, allocate_lanes, allocate_lane},
    {"heap.free", Kind::effect, 0, 1, {8}, nullptr, free_lanes, free_lane},
    {"fence", Kind::effect, 0, 0, {}, nullptr, fence_lanes, fence_lane},
    {"local.base", Kind::effect, 8, 1, {8}, nullptr, LocalBase::lanes, LocalBase::lane},
    pure<clock_32>("clock.b32"),
    pure<clock_hi>("clock.hi.b32"),
    pure<clock_64>("clock.b64"),
    pure<timer_32>("timer.b32"),
    pure<timer_hi>("timer.hi.b32"),
    pure<timer_64>("timer.b64"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
