// SPDX-License-Identifier: Apache-2.0
// From the addresses of lanes to memory, checked. Global and generic addresses are host addresses
// inside a live range; those of the other spaces are offsets (shared: of 32 bits) that wrap.
#pragma once

#ifdef __AVX2__
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
inline constexpr u32 warp_lanes = 32;
inline constexpr u64 all_of_warp = 0xffffffff;

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
    return in_range({0, g.block->shared_bytes}, address, bytes) ? g.block->shared + address
                                                                : nullptr;
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
    constexpr auto space = W == Where::shared  ? MemorySpace::shared
                           : W == Where::local ? MemorySpace::local
                                               : MemorySpace::parameters;
    record_access(g, in, lane,
                  {.fault = aligned ? Fault::illegal_address : Fault::misaligned_address,
                   .address = address,
                   .bytes = Bytes,
                   .access = A,
                   .space = space,
                   .space_bytes = size});
    return nullptr;
  }
}

// How the addresses of several lanes lie, for elements of Bytes bytes.
enum class Form : u8 { contiguous, uniform, irregular };

#if defined(__AVX512F__)
inline constexpr u32 vector_bytes = 64;
#elif defined(__AVX2__)
inline constexpr u32 vector_bytes = 32;
#else
inline constexpr u32 vector_bytes = 16;
#endif

template <class Vector>
CTXB_OP bool is_zero(Vector vector) {
#if defined(__AVX512F__)
  const auto all = bits<__m512i>(vector);
  return _mm512_test_epi64_mask(all, all) == 0;
#elif defined(__AVX2__)
  const auto all = bits<__m256i>(vector);
  return _mm256_testz_si256(all, all) != 0;
#else
  return (vector[0] | vector[1] | vector[sizeof(vector) / sizeof(vector[0]) - 2] |
          vector[sizeof(vector) / sizeof(vector[0]) - 1]) == 0;
#endif
}

// Whether each address is Step more than the one before. With vectors of GCC's, because it does not
// make them of such a loop by itself.
template <u32 Count, u32 Step, class A>
CTXB_OP bool are_apart_by(const A* a) {
  using Vector [[gnu::vector_size(vector_bytes)]] = A;
  constexpr u32 lanes = vector_bytes / sizeof(A);
  Vector expected, apart = {};
  for (u32 i = 0; i < lanes; ++i) expected[i] = static_cast<A>(a[0] + i * Step);
  for (u32 i = 0; i < Count; i += lanes) {
    apart |= *reinterpret_cast<const Vector*>(a + i) ^ expected;
    expected += static_cast<A>(lanes * Step);
  }
  return is_zero(apart);
}

// Two lanes tell most often already.
template <u32 Count, u32 Bytes, class A>
CTXB_OP Form form_of(const A* a) {
  if (a[Count - 1] == a[0]) return are_apart_by<Count, 0>(a) ? Form::uniform : Form::irregular;
  if (a[Count - 1] != static_cast<A>(a[0] + (Count - 1) * Bytes)) return Form::irregular;
  return are_apart_by<Count, Bytes>(a) ? Form::contiguous : Form::irregular;
}

// The addresses of a group's lanes, as a value of the frame.
template <Where W, u32 Bytes>
struct AnyAddresses {
  const Address<W>* lanes;
  AnyAddresses(const Group& g, const Instr& in) : lanes(lanes_at<Address<W>>(g.frame, in.a)) {}
  template <u32 Count>
  CTXB_OP Form form(u32 first) const {
    return form_of<Count, Bytes>(lanes + first);
  }
  CTXB_OP Address<W> operator[](u32 i) const { return lanes[i]; }
};

// The same where they are known to follow one another.
template <u32 Bytes>
struct RowOfAddresses {
  u64 first;
  RowOfAddresses(const Group& g, const Instr& in)
      : first(g.block->rows[in.a] + u64{g.first_thread} * Bytes) {}
  template <u32 Count>
  CTXB_OP static Form form(u32) {
    return Form::contiguous;
  }
  CTXB_OP u64 operator[](u32 i) const { return first + u64{i} * Bytes; }
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
