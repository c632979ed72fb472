// SPDX-License-Identifier: Apache-2.0
// How a policy is written: a plain function with the driver's own signature, and the driver's
// function behind it.
//
//   using Real = DriverFunction<"cuCtxSetCurrent", CUresult(CUcontext)>;
//   CUresult set_current(CUcontext context) noexcept { ... return Real::call(context); }
//   constexpr PolicyRow rows[] = {policy<Real, set_current>()};
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>

#include "driver/driver_table.hpp"
#include "gate/caller.hpp"
#include "gate/library/gate.h"

namespace ctxbroker::detail {

template <std::size_t size>
struct SymbolName {
  char text[size];
  constexpr SymbolName(const char (&name)[size]) {  // NOLINT: from a literal, as an argument
    std::copy_n(name, size, text);
  }
};

template <SymbolName name, typename Signature>
struct DriverFunction;

template <SymbolName name, typename... Parameters>
struct DriverFunction<name, CUresult(Parameters...)> {
  using Function = CUresult(Parameters...);
  static constexpr const char* symbol = name.text;
  // It is global, because a policy is called with the driver's arguments and nothing else.
  static inline std::atomic<Function*> behind{nullptr};

  static CUresult call(Parameters... arguments) noexcept {
    return behind.load(std::memory_order_relaxed)(arguments...);
  }
  static bool is_bound() noexcept { return behind.load(std::memory_order_relaxed) != nullptr; }
  static void bind(ctxb_gate_function function, std::size_t its_place) noexcept {
    place.store(its_place, std::memory_order_relaxed);
    behind.store(reinterpret_cast<Function*>(function), std::memory_order_relaxed);
  }
  static inline std::atomic<std::size_t> place{0};  // among the policies, for counting
};

// Every policy begins with this. It finds out who is calling, and counts the call of a tenant. It
// is inlined, because the return address has to be the policy's own.
template <typename Real>
[[gnu::always_inline]] inline Caller enter_policy() noexcept {
  Caller caller = calling();
  caller.from = __builtin_return_address(0);
  if (caller.tenant != nullptr) {
    caller.tenant->count_hit(Real::place.load(std::memory_order_relaxed));
  }
  return caller;
}

struct PolicyRow {
  const char* symbol;
  ctxb_gate_function (*policy)() noexcept;  // null: unguarded
  void (*bind)(ctxb_gate_function, std::size_t place) noexcept;
};

template <typename Real, typename Real::Function* function>
constexpr PolicyRow policy() {
  return {Real::symbol, []() noexcept { return reinterpret_cast<ctxb_gate_function>(function); },
          &Real::bind};
}

// The same for a class with the driver's function, Real, and the policy for it, call.
template <typename Policy>
constexpr PolicyRow row() {
  return policy<typename Policy::Real, Policy::call>();
}

// A function that policies call and that has no policy itself.
template <typename Real>
constexpr PolicyRow unguarded() {
  return {Real::symbol, nullptr, &Real::bind};
}

// Every policy of the gate, by room of the driver.
extern const std::span<const PolicyRow> primary_policies;  // its state, and flags of contexts
extern const std::span<const PolicyRow> context_policies;  // current, create, destroy, limits
extern const std::span<const PolicyRow> peer_policies;     // access to other devices
extern const std::span<const PolicyRow> virtual_memory_policies;  // addresses, physical memory
extern const std::span<const PolicyRow> pool_policies;            // pools, and what comes of them
extern const std::span<const PolicyRow> object_policies;        // memory, modules, streams, events
extern const std::span<const PolicyRow> graph_policies;         // graphs, and memory of theirs
extern const std::span<const PolicyRow> graph_change_policies;  // nodes, and what changes them
extern const std::span<const PolicyRow> capture_policies;       // captures, which make graphs
extern const std::span<const PolicyRow> callback_policies;      // functions that the driver calls
extern const std::span<const PolicyRow> use_policies;           // work on what others may hold
extern const std::span<const PolicyRow> interop_policies;       // other APIs, textures, the linker
extern const std::span<const PolicyRow> wait_policies;          // synchronise
extern const std::span<const PolicyRow> process_policies;       // profiler, core dumps, callbacks

// A policy's place among all of them, in the order above.
std::size_t policy_count() noexcept;
const PolicyRow& policy_at(std::size_t index) noexcept;

}  // namespace ctxbroker::detail
