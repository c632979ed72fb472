// SPDX-License-Identifier: Apache-2.0
// Read-modify-write operations on memory. Blocks run on different threads, hence real atomics;
// shared memory belongs to one thread at a time, but takes the same path.
#include "exec/level/half.hpp"
#include "exec/level/memory_access.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

// What is in memory, the operand, the second operand of cas: what memory becomes.
template <class T>
CTXB_OP T op_add(T old, T b, T) {
  return static_cast<T>(old + b);
}
template <class T>
CTXB_OP T op_exch(T, T b, T) {
  return b;
}
template <class T>
CTXB_OP T op_cas(T old, T compare, T value) {
  return old == compare ? value : old;
}
template <class T>
CTXB_OP T op_min(T old, T b, T) {
  return b < old ? b : old;
}
template <class T>
CTXB_OP T op_max(T old, T b, T) {
  return b > old ? b : old;
}
template <class T>
CTXB_OP T op_and(T old, T b, T) {
  return old & b;
}
template <class T>
CTXB_OP T op_or(T old, T b, T) {
  return old | b;
}
template <class T>
CTXB_OP T op_xor(T old, T b, T) {
  return old ^ b;
}
CTXB_OP u32 op_inc(u32 old, u32 b, u32) {
  return old >= b ? 0 : old + 1;
}
CTXB_OP u32 op_dec(u32 old, u32 b, u32) {
  return old == 0 || old > b ? b : old - 1;
}

template <u32 Bytes>
struct Raw;
template <>
struct Raw<2> {
  using Type = u16;
};
template <>
struct Raw<4> {
  using Type = u32;
};
template <>
struct Raw<8> {
  using Type = u64;
};

template <Where W, class T, T (*F)(T, T, T), bool HasSecond>
struct Atomic {
  using Bits = typename Raw<sizeof(T)>::Type;

  CTXB_OP static T apply(byte* at, T b, T c) {
    auto* cell = reinterpret_cast<Bits*>(at);
    Bits old = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(cell, &old, bits<Bits>(F(bits<T>(old), b, c)), true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return bits<T>(old);
  }

  static bool lanes(Group& g, const Instr& in, u64 mask) {
    const Address<W>* a = lanes_at<Address<W>>(g.frame, in.a);
    const T* b = lanes_at<T>(g.frame, in.b);
    const T* c = HasSecond ? lanes_at<T>(g.frame, in.c) : b;
    for (; mask != 0; mask &= mask - 1) {
      const u32 i = static_cast<u32>(__builtin_ctzll(mask));
      byte* at = lane_at<W, sizeof(T), Access::atomic>(g, in, i, effective<W>(a[i], in));
      if (at == nullptr) return false;
      const T old = apply(at, b[i], c[i]);
      if (in.dst != no_offset) lanes_at<T>(g.frame + in.dst)[i] = old;
    }
    return true;
  }

  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    const u64 address = effective<W>(load<Address<W>>(frame + in->a), *in);
    byte* at = lane_at<W, sizeof(T), Access::atomic>(*l.group, *in, l.index, address);
    if (at == nullptr) [[unlikely]] {
      l.result = Lane::Result::fault;
      return nullptr;
    }
    const T b = load<T>(frame + in->b);
    const T old = apply(at, b, HasSecond ? load<T>(frame + in->c) : b);
    if (in->dst != no_offset) store<T>(frame + in->dst, old);
    ++in;
    CTXB_NEXT(in, frame, l);
  }

  static constexpr OpEntry entry(const char* name) {
    return {name,
            Kind::effect,
            sizeof(T),
            HasSecond ? 3 : 2,
            {sizeof(Address<W>), sizeof(T), HasSecond ? sizeof(T) : 0},
            nullptr,
            lanes,
            lane};
  }
};

}  // namespace

#define CTXB_ATOMIC(where, operation, type)                                                    \
  Atomic<Where::where, type, op_##operation<type>, false>::entry("atom." #where "." #operation \
                                                                 "." #type)
#define CTXB_ATOMICS(where)                                                                       \
  CTXB_ATOMIC(where, add, u32), CTXB_ATOMIC(where, add, u64), CTXB_ATOMIC(where, add, f32),       \
      CTXB_ATOMIC(where, add, f64), CTXB_ATOMIC(where, add, f16), CTXB_ATOMIC(where, add, f16x2), \
      CTXB_ATOMIC(where, add, bf16), CTXB_ATOMIC(where, add, bf16x2),                             \
      CTXB_ATOMIC(where, exch, u32), CTXB_ATOMIC(where, exch, u64), CTXB_ATOMIC(where, min, u32), \
      CTXB_ATOMIC(where, min, s32), CTXB_ATOMIC(where, min, u64), CTXB_ATOMIC(where, min, s64),   \
      CTXB_ATOMIC(where, max, u32), CTXB_ATOMIC(where, max, s32), CTXB_ATOMIC(where, max, u64),   \
      CTXB_ATOMIC(where, max, s64), CTXB_ATOMIC(where, and, u32), CTXB_ATOMIC(where, and, u64),   \
      CTXB_ATOMIC(where, or, u32), CTXB_ATOMIC(where, or, u64), CTXB_ATOMIC(where, xor, u32),     \
      CTXB_ATOMIC(where, xor, u64),                                                               \
      Atomic<Where::where, u32, op_inc, false>::entry("atom." #where ".inc.u32"),                 \
      Atomic<Where::where, u32, op_dec, false>::entry("atom." #where ".dec.u32"),                 \
      Atomic<Where::where, u16, op_cas<u16>, true>::entry("atom." #where ".cas.u16"),             \
      Atomic<Where::where, u32, op_cas<u32>, true>::entry("atom." #where ".cas.u32"),             \
      Atomic<Where::where, u64, op_cas<u64>, true>::entry("atom." #where ".cas.u64")

extern const OpEntry atomic_ops[] = {
    CTXB_ATOMICS(global),
    CTXB_ATOMICS(shared),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
