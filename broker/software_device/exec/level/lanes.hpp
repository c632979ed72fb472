// SPDX-License-Identifier: Apache-2.0
// From a function on plain values to an operation of both engines. Compiled once per
// instruction-set level, with CTXB_LEVEL as the level's namespace. Everything here is in
// that namespace, and nothing of std:: is instantiated: the linker keeps one copy of an inline
// function, and that copy must not be the one with AVX-512 in it.
#pragma once

#include "exec/engine.hpp"

#ifndef CTXB_LEVEL
#error "compiled once per level, with CTXB_LEVEL set to its namespace"
#endif

// Without optimisation (and under sanitizers) calls in tail position are not jumps.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CTXB_NEXT(in, frame, lane) return (in)->scalar((in), (frame), (lane))
#else
#define CTXB_NEXT(in, frame, lane) return (static_cast<void>(frame), static_cast<void>(lane), (in))
#endif

#define CTXB_OP [[gnu::always_inline]] inline

namespace ctxbroker::software::exec::CTXB_LEVEL {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;
using Pred = std::uint8_t;  // 0 or 1
using std::byte;

template <class To, class From>
CTXB_OP To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

template <class T>
CTXB_OP T load(const byte* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}
template <class T>
CTXB_OP void store(byte* at, T value) {
  __builtin_memcpy(at, &value, sizeof(T));
}
template <class T>
CTXB_OP const T* lanes_at(const byte* frame, u32 offset) {
  return static_cast<const T*>(__builtin_assume_aligned(frame + offset, 64));
}
template <class T>
CTXB_OP T* lanes_at(byte* at) {
  return static_cast<T*>(__builtin_assume_aligned(at, 64));
}

// dst may be one of the sources, never overlap one partly: hence ivdep.
#define CTXB_LANES _Pragma("GCC ivdep") for (u32 i = 0; i < group_lanes; ++i)

template <auto F>
struct Pure;

template <class D, D (*F)()>
struct Pure<F> {
  static constexpr OpEntry entry(const char* name) {
    return {name, Kind::pure, sizeof(D), 0, {}, lanes, nullptr, lane};
  }
  static void lanes(byte* dst, const byte*, const Instr&) {
    const D value = F();
    D* d = lanes_at<D>(dst);
    CTXB_LANES d[i] = value;
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<D>(frame + in->dst, F());
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

template <class D, class A, D (*F)(A)>
struct Pure<F> {
  static constexpr OpEntry entry(const char* name) {
    return {name, Kind::pure, sizeof(D), 1, {sizeof(A)}, lanes, nullptr, lane};
  }
  static void lanes(byte* dst, const byte* frame, const Instr& in) {
    D* d = lanes_at<D>(dst);
    const A* a = lanes_at<A>(frame, in.a);
    CTXB_LANES d[i] = F(a[i]);
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<D>(frame + in->dst, F(load<A>(frame + in->a)));
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

template <class D, class A, class B, D (*F)(A, B)>
struct Pure<F> {
  static constexpr OpEntry entry(const char* name) {
    return {name, Kind::pure, sizeof(D), 2, {sizeof(A), sizeof(B)}, lanes, nullptr, lane};
  }
  static void lanes(byte* dst, const byte* frame, const Instr& in) {
    D* d = lanes_at<D>(dst);
    const A* a = lanes_at<A>(frame, in.a);
    const B* b = lanes_at<B>(frame, in.b);
    CTXB_LANES d[i] = F(a[i], b[i]);
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<D>(frame + in->dst, F(load<A>(frame + in->a), load<B>(frame + in->b)));
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

template <class D, class A, class B, class C, D (*F)(A, B, C)>
struct Pure<F> {
  static constexpr OpEntry entry(const char* name) {
    return {name,  Kind::pure, sizeof(D), 3, {sizeof(A), sizeof(B), sizeof(C)},
            lanes, nullptr,    lane};
  }
  static void lanes(byte* dst, const byte* frame, const Instr& in) {
    D* d = lanes_at<D>(dst);
    const A* a = lanes_at<A>(frame, in.a);
    const B* b = lanes_at<B>(frame, in.b);
    const C* c = lanes_at<C>(frame, in.c);
    CTXB_LANES d[i] = F(a[i], b[i], c[i]);
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<D>(frame + in->dst,
             F(load<A>(frame + in->a), load<B>(frame + in->b), load<C>(frame + in->c)));
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

template <class D, class A, class B, class C, class E, D (*F)(A, B, C, E)>
struct Pure<F> {
  static constexpr OpEntry entry(const char* name) {
    return {name,  Kind::pure, sizeof(D), 4, {sizeof(A), sizeof(B), sizeof(C), sizeof(E)},
            lanes, nullptr,    lane};
  }
  static void lanes(byte* dst, const byte* frame, const Instr& in) {
    D* d = lanes_at<D>(dst);
    const A* a = lanes_at<A>(frame, in.a);
    const B* b = lanes_at<B>(frame, in.b);
    const C* c = lanes_at<C>(frame, in.c);
    const E* e = lanes_at<E>(frame, in.d);
    CTXB_LANES d[i] = F(a[i], b[i], c[i], e[i]);
  }
  static const Instr* lane(const Instr* in, byte* frame, Lane& l) {
    store<D>(frame + in->dst, F(load<A>(frame + in->a), load<B>(frame + in->b),
                                load<C>(frame + in->c), load<E>(frame + in->d)));
    ++in;
    CTXB_NEXT(in, frame, l);
  }
};

template <auto F>
constexpr OpEntry pure(const char* name) {
  return Pure<F>::entry(name);
}

inline constexpr OpEntry end_of_table{nullptr, Kind::pure, 0, 0, {}, nullptr, nullptr, nullptr};

// The tables, one per family and file.
extern const OpEntry integer_ops[];
extern const OpEntry bit_ops[];
extern const OpEntry float_ops[];
extern const OpEntry compare_ops[];
extern const OpEntry convert_ops[];
extern const OpEntry math_ops[];
extern const OpEntry half_ops[];
extern const OpEntry load_ops[];
extern const OpEntry store_ops[];
extern const OpEntry atomic_ops[];
extern const OpEntry warp_ops[];
extern const OpEntry control_ops[];
extern const OpEntry stack_ops[];

Progress run_lockstep(Group& group, const Instr* code);
void run_lane(Lane& lane, const Instr* from);
const Instr* scalar_guard(const Instr* in, byte* frame, Lane& lane);

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
