// From the addresses of lanes to memory, checked. Global and generic addresses are host addresses
// inside a live range; those of the other spaces are offsets (shared: of 32 bits) that wrap.
#pragma once

#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {

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

template <Where W>
CTXB_OP u64 effective(Address<W> base, const Instr& in) {
  return static_cast<Address<W>>(base + static_cast<Address<W>>(in.immediate));
}

CTXB_OP bool in_range(const AddressRange& range, u64 address, u64 bytes) {
  return address >= range.begin && address < range.end && range.end - address >= bytes;
}

// Memory of the group as a whole from an address on, or null if it is not in one piece and known.
template <Where W>
CTXB_OP byte* span_at(const Group& g, const Instr& in, u64 address, u64 bytes) {
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

// Memory of one access by one lane; null: the fault is recorded.
template <Where W, u32 Bytes>
CTXB_OP byte* lane_at(Group& g, const Instr& in, u32 lane, u64 address) {
  const bool aligned = (address & (Bytes - 1)) == 0;
  if constexpr (W == Where::global) {
    if (aligned && in_range(g.block->sites[in.site], address, Bytes)) [[likely]] {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      return reinterpret_cast<byte*>(address);
    }
    return resolve_address(g, in, lane, address, Bytes);
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
    record_fault(g, in, lane, aligned ? Fault::illegal_address : Fault::misaligned_address, address,
                 Bytes);
    return nullptr;
  }
}

// How the addresses of all 64 lanes lie. Elements are Bytes long.
template <class A>
struct Shape {
  bool contiguous, uniform;
};
template <class A, u32 Bytes, u32 Count>
CTXB_OP Shape<A> shape_of(const A* a) {
  const A first = a[0];
  A apart = 0, different = 0;
  for (u32 i = 0; i < Count; ++i) {
    apart |= static_cast<A>(a[i] ^ static_cast<A>(first + i * Bytes));
    different |= static_cast<A>(a[i] ^ first);
  }
  return {apart == 0, different == 0};
}

// The lowest and highest address, and all low bits that occur.
struct Extent {
  u64 low, high, low_bits;
};
template <Where W>
CTXB_OP Extent extent_of(const Address<W>* a, const Instr& in) {
  using A = Address<W>;
  const A offset = static_cast<A>(in.immediate);
  A low = static_cast<A>(~A{0}), high = 0, low_bits = 0;
  for (u32 i = 0; i < group_lanes; ++i) {
    const A at = static_cast<A>(a[i] + offset);
    low = at < low ? at : low;
    high = at > high ? at : high;
    low_bits |= at;
  }
  return {low, high, low_bits};
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
