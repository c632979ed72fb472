// SPDX-License-Identifier: Apache-2.0
// Calls of tenants' code that hold up their neighbours, in a real-time session. The table in
// context/realtime_calls.hpp says which calls these are.
#pragma once

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>

#include "context/realtime_session.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// One such call, from here to the end of the scope. Calls of the host's code are not counted here.
class NeighbourCall {
 public:
  // `call`: its place in the table. `named`: the context that the call names; null: the current
  // one. `memory`: the memory in its first argument; 0: none. `flags`: those of cuMemHostAlloc.
  [[gnu::cold]] NeighbourCall(std::size_t call, CUcontext named, CUdeviceptr memory,
                              unsigned flags) noexcept;
  // Returns whether the tenant's policy refuses it.
  bool is_refused() const noexcept { return is_refused_; }

 private:
  bool is_refused_ = false;
  std::optional<RealtimeWork> work_;
};

// Returns whether a call that frees or destroys something was given nothing.
template <typename First, typename... Rest>
constexpr bool is_first_empty(First first, Rest...) noexcept {
  return first == First{};
}
constexpr bool is_first_empty() noexcept {
  return false;
}

template <typename... Arguments>
CUcontext named_context([[maybe_unused]] Arguments... arguments) noexcept {
  if constexpr (std::is_same_v<void(Arguments...), void(CUcontext)>) {
    return (arguments, ...);
  } else {
    return nullptr;
  }
}

template <typename First = void*, typename... Rest>
CUdeviceptr named_memory([[maybe_unused]] First first = {}, Rest...) noexcept {
  if constexpr (std::is_same_v<First, CUdeviceptr>) {
    return first;
  } else if constexpr (std::is_same_v<First, void*>) {
    return reinterpret_cast<CUdeviceptr>(first);
  } else {
    return 0;
  }
}

template <typename... Arguments>
unsigned named_flags([[maybe_unused]] Arguments... arguments) noexcept {
  if constexpr (std::is_same_v<void(Arguments...), void(void**, std::size_t, unsigned)>) {
    return std::get<2>(std::tuple(arguments...));
  } else {
    return 0;
  }
}

// Calls the rule of a driver function. Outside real-time sessions, this costs one load for the
// functions in the table, and nothing for others.
template <typename Real, typename... Parameters>
CUresult call_beside_neighbours(CUresult (*rule)(Parameters...), Parameters... arguments) noexcept {
  constexpr auto call = find_realtime_call(Real::symbol);
  if constexpr (call) {
    const bool ends_nothing =
        realtime_calls[*call].answer == RealtimeAnswer::count && is_first_empty(arguments...);
    if (RealtimeSession::anywhere() && !ends_nothing) [[unlikely]] {
      const NeighbourCall one(*call, named_context(arguments...), named_memory(arguments...),
                              named_flags(arguments...));
      return one.is_refused() ? CUDA_ERROR_NOT_PERMITTED : rule(arguments...);
    }
  }
  return rule(arguments...);
}

}  // namespace ctxbroker::detail
