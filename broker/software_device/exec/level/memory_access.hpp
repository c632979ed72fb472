// From the addresses of lanes to memory, checked. Global and generic addresses are host addresses
// inside a live range; those of the other spaces are offsets (shared: of 32 bits) that wrap.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {

// A kernel's own accesses to memory. Kernels poll what the host or another kernel writes, and race
// with themselves where CUDA lets them: ThreadSanitizer is to look at this device, not at kernels.
// It takes atomic accesses for what they are, and still finds a host access that waits for nothing.
template <class M>
CTXB_OP M fetch(const byte* from) {
#ifdef __SANITIZE_THREAD__
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(M) == 0) {
    return __atomic_load_n(reinterpret_cast<const M*>(from), __ATOMIC_RELAXED);
  }
#endif
  return load<M>(from);
}
template <class M>
CTXB_OP void put(byte* to, M value) {
#ifdef __SANITIZE_THREAD__
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(M) == 0) {
    __atomic_store_n(reinterpret_cast<M*>(to), value, __ATOMIC_RELAXED);
    return;
  }
#endif
  store<M>(to, value);
}

enum class Where { global, shared, local, param };

template <Where W>
struct AddressOf {
  using Type = u64;
};
template <>
struct AddressOf<Where::shared> {
  using Type = u32;
};
template <Where W>
using Address = typename AddressOf<W>::Type;

inline constexpr u64 all_lanes = ~0ULL;
inline constexpr u32 segment_lanes = 16;
inline constexpr u32 all_of_segment = 0xffff;

template <Where W>
CTXB_OP u64 effective(Address<W> base, const Instr& in) {
  return static_cast<Address<W>>(base + static_cast<Address<W>>(in.immediate));
}

CTXB_OP bool in_range(const AddressRange& range, u64 address, u64 bytes) {
  return address >= range.begin && address < range.end && range.end - address >= bytes;
}

// Memory of several lanes from an address on; null if it is not in one piece, known and aligned.
template <Where W, u32 Alignment>
CTXB_OP byte* span_at(const Group& g, const Instr& in, u64 address, u64 bytes) {
  if ((address & (Alignment - 1)) != 0) return nullptr;
  if constexpr (W == Where::global) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
    return in_range(g.block->sites[in.site], address, bytes) ? reinterpret_cast<byte*>(address)
                                                             : nullptr;
  } else if constexpr (W == Where::shared) {
    return address + bytes <= g.block->shared_bytes ? g.block->shared + address : nullptr;
  } else {
    return nullptr;
  }
}

// Memory of one access by one lane; null: the fault is recorded. Of a read that leaves its memory
// it is a copy: see Access.
template <Where W, u32 Bytes, Access A = Access::write>
CTXB_OP byte* lane_at(Group& g, const Instr& in, u32 lane, u64 address) {
  const bool aligned = (address & (Bytes - 1)) == 0;
  if constexpr (W == Where::global) {
    if (aligned && in_range(g.block->sites[in.site], address, Bytes)) [[likely]] {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      return reinterpret_cast<byte*>(address);
    }
    return resolve_address(g, in, lane, address, Bytes, A);
  } else {
    byte* base = nullptr;
    u64 size = 0;
    if constexpr (W == Where::shared) {
      base = g.block->shared;
      size = g.block->shared_bytes;
    } else if constexpr (W == Where::local) {
      base = g.local + lane * g.local_stride;
      size = g.local_bytes;
    } else {
      base = const_cast<byte*>(g.block->parameters);  // read only: there is no store to it
      size = g.block->parameter_bytes;
    }
    if (aligned && address < size && size - address >= Bytes) [[likely]] {
      return base + address;
    }
    if constexpr (A == Access::read) {
      if (aligned && address < size) return read_end(g, base + address, size - address);
    }
    record_fault(g, in, lane, aligned ? Fault::illegal_address : Fault::misaligned_address, address,
                 Bytes);
    return nullptr;
  }
}

// How the addresses of a segment's 16 lanes lie, for elements of Bytes bytes.
enum class Form : u8 { contiguous, uniform, irregular };

template <u32 Bytes, class A>
CTXB_OP Form form_of(const A* a) {
  const A first = a[0];
#if defined(__AVX512F__)
  if constexpr (sizeof(A) == 4) {
    const __m512i all = _mm512_load_si512(a), base = _mm512_set1_epi32(static_cast<s32>(first));
    constexpr s32 b = Bytes;
    const __m512i steps = _mm512_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b, 8 * b,
                                            9 * b, 10 * b, 11 * b, 12 * b, 13 * b, 14 * b, 15 * b);
    if (_mm512_cmpneq_epi32_mask(all, _mm512_add_epi32(base, steps)) == 0) return Form::contiguous;
    return _mm512_cmpneq_epi32_mask(all, base) == 0 ? Form::uniform : Form::irregular;
  } else {
    const __m512i low = _mm512_load_si512(a), high = _mm512_load_si512(a + 8);
    const __m512i base = _mm512_set1_epi64(static_cast<s64>(first));
    constexpr s64 b = Bytes;
    const __m512i steps = _mm512_setr_epi64(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
    const __m512i next = _mm512_add_epi64(base, steps);
    const __m512i after = _mm512_add_epi64(next, _mm512_set1_epi64(8 * b));
    if ((_mm512_cmpneq_epi64_mask(low, next) | _mm512_cmpneq_epi64_mask(high, after)) == 0) {
      return Form::contiguous;
    }
    const auto differ = _mm512_cmpneq_epi64_mask(low, base) | _mm512_cmpneq_epi64_mask(high, base);
    return differ == 0 ? Form::uniform : Form::irregular;
  }
#else
  // Most often the second lane tells already.
  if (a[1] == first) {
    A apart = 0;
    for (u32 i = 0; i < segment_lanes; ++i) apart |= a[i] ^ first;
    return apart == 0 ? Form::uniform : Form::irregular;
  }
  if (a[1] != static_cast<A>(first + Bytes)) return Form::irregular;
  A apart = 0;
  for (u32 i = 0; i < segment_lanes; ++i) apart |= a[i] ^ static_cast<A>(first + i * Bytes);
  return apart == 0 ? Form::contiguous : Form::irregular;
#endif
}

// Whether the whole group's addresses follow one another.
template <u32 Bytes, class A>
CTXB_OP bool is_contiguous(const A* a) {
  const A first = a[0];
  for (u32 s = 0; s < group_lanes; s += segment_lanes) {
    if (a[s] != static_cast<A>(first + s * Bytes)) return false;
  }
  for (u32 s = 0; s < group_lanes; s += segment_lanes) {
    if (form_of<Bytes>(a + s) != Form::contiguous) return false;
  }
  return true;
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
