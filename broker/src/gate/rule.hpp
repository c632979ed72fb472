// SPDX-License-Identifier: Apache-2.0
// How a rule is written: a plain function with the driver's own signature, and the driver's
// function behind it.
//
//   using Real = DriverFunction<"cuCtxSetCurrent", CUresult(CUcontext)>;
//   CUresult set_current(CUcontext context) noexcept { ... return Real::call(context); }
//   constexpr RuleRow rows[] = {rule<Real, set_current>()};
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>

#include "driver/driver_table.hpp"
#include "gate/caller.hpp"
#include "gate/library/gate.h"
#include "gate/neighbour_call.hpp"

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
  // It is global, because a rule is called with the driver's arguments and nothing else.
  static inline std::atomic<Function*> behind{nullptr};

  static CUresult call(Parameters... arguments) noexcept {
    return behind.load(std::memory_order_relaxed)(arguments...);
  }
  static bool is_bound() noexcept { return behind.load(std::memory_order_relaxed) != nullptr; }
  static void bind(ctxb_gate_function function, std::size_t its_place) noexcept {
    place.store(its_place, std::memory_order_relaxed);
    behind.store(reinterpret_cast<Function*>(function), std::memory_order_relaxed);
  }
  static inline std::atomic<std::size_t> place{0};  // among the rules, for counting
};

// Every rule begins with this. It finds out who is calling, and counts the call of a tenant.
template <typename Real>
Caller enter_rule() noexcept {
  Caller caller = calling();
  caller.from = thread_state.called_from;
  if (caller.tenant != nullptr) {
    caller.tenant->count_hit(Real::place.load(std::memory_order_relaxed));
  }
  return caller;
}

// Answers a call from a function that the driver calls. In callback.cpp.
[[gnu::cold]] CUresult refuse_in_callback(const char* function) noexcept;

// Tells the lease whose context is current when the status that a call returns to a tenant's code
// says that CUDA has ended or that the context is gone. `from`: where the call returns to. In
// losses.cpp.
[[gnu::cold]] void report_failure(CUresult status, const void* from) noexcept;

// The way into a rule. CUDA forbids calls of the driver in host functions, stream callbacks and
// destructors of user objects, so these never reach a rule: what a rule waits for may wait for
// them.
template <typename Real, typename Signature, Signature* function>
struct Entrance;
template <typename Real, typename... Parameters, CUresult (*function)(Parameters...)>
struct Entrance<Real, CUresult(Parameters...), function> {
  static CUresult call(Parameters... arguments) noexcept {
    if (is_in_callback()) [[unlikely]]
      return refuse_in_callback(Real::symbol);
    const void* const from = __builtin_return_address(0);
    thread_state.called_from = from;
    const CUresult status = call_beside_neighbours<Real>(function, arguments...);
    if (status != CUDA_SUCCESS) [[unlikely]]
      report_failure(status, from);
    return status;
  }
};

struct RuleRow {
  const char* symbol;
  ctxb_gate_function (*rule)() noexcept;  // null: unguarded
  void (*bind)(ctxb_gate_function, std::size_t place) noexcept;
};

template <typename Real, typename Real::Function* function>
constexpr RuleRow rule() {
  using Entry = Entrance<Real, typename Real::Function, function>;
  return {Real::symbol, []() noexcept { return reinterpret_cast<ctxb_gate_function>(Entry::call); },
          &Real::bind};
}

// The same for a class with the driver's function, Real, and the rule for it, call.
template <typename Rule>
constexpr RuleRow row() {
  return rule<typename Rule::Real, Rule::call>();
}

// A function that rules call and that has no rule itself.
template <typename Real>
constexpr RuleRow unguarded() {
  return {Real::symbol, nullptr, &Real::bind};
}

// Every rule of the gate, by room of the driver.
extern const std::span<const RuleRow> primary_rules;         // its state, and flags of contexts
extern const std::span<const RuleRow> context_rules;         // current, create, destroy, limits
extern const std::span<const RuleRow> handle_rules;          // which context something is of
extern const std::span<const RuleRow> pointer_rules;         // questions about addresses
extern const std::span<const RuleRow> peer_rules;            // access to other devices
extern const std::span<const RuleRow> virtual_memory_rules;  // addresses, physical memory
extern const std::span<const RuleRow> pool_rules;            // pools, and what comes of them
extern const std::span<const RuleRow> object_rules;          // memory, modules, streams, events
extern const std::span<const RuleRow> graph_rules;           // graphs, and memory of theirs
extern const std::span<const RuleRow> graph_change_rules;    // nodes, and what changes them
extern const std::span<const RuleRow> capture_rules;         // captures, which make graphs
extern const std::span<const RuleRow> callback_rules;        // functions that the driver calls
extern const std::span<const RuleRow> use_rules;             // work on what others may hold
extern const std::span<const RuleRow> interop_rules;         // other APIs, textures, the linker
extern const std::span<const RuleRow> wait_rules;            // synchronise
extern const std::span<const RuleRow> process_rules;         // profiler, core dumps, callbacks

// A rule's place among all of them, in the order above.
std::size_t rule_count() noexcept;
const RuleRow& rule_at(std::size_t index) noexcept;

}  // namespace ctxbroker::detail
