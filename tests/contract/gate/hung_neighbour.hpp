// SPDX-License-Identifier: Apache-2.0
// The cells of hung_neighbour_test.cpp: each is a test of hung_neighbour_cells.cpp, which runs in a
// child.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>

#include "ctxbroker/lease.hpp"

namespace ctxbroker {

// What the neighbour of hung work calls.
enum class Call {
  process,
  load,
  create,
  create_automatically,
  activate,
  module_on_first_use,
  first_run,
  second_thread,
  allocate,
  module_of_its_own,
  module_beside_a_capture,
  green_of_its_own,
  poll,
  deactivate,
  destroy,
  unload_library,
  release,
  free_of_its_own,
  other_ends_of_its_own,
  synchronize,
  close_tenant,
  close_tenant_with_a_context,
  close_broker,
  use_device,
  realtime,
  peer_access,
  shared_memory,
  unload_idle_modules,
  force_loss,
  graph,
  preset,
  poll_beside_a_renewal,
  create_beside_an_end,
  stream_beside_a_load,
};
inline constexpr Call calls[] = {Call::process,
                                 Call::load,
                                 Call::create,
                                 Call::create_automatically,
                                 Call::activate,
                                 Call::module_on_first_use,
                                 Call::first_run,
                                 Call::second_thread,
                                 Call::allocate,
                                 Call::module_of_its_own,
                                 Call::module_beside_a_capture,
                                 Call::green_of_its_own,
                                 Call::poll,
                                 Call::deactivate,
                                 Call::destroy,
                                 Call::unload_library,
                                 Call::release,
                                 Call::free_of_its_own,
                                 Call::other_ends_of_its_own,
                                 Call::synchronize,
                                 Call::close_tenant,
                                 Call::close_tenant_with_a_context,
                                 Call::close_broker,
                                 Call::use_device,
                                 Call::realtime,
                                 Call::peer_access,
                                 Call::shared_memory,
                                 Call::unload_idle_modules,
                                 Call::force_loss,
                                 Call::graph,
                                 Call::preset,
                                 Call::poll_beside_a_renewal,
                                 Call::create_beside_an_end,
                                 Call::stream_beside_a_load};

inline const char* name_of(Call call) {
  constexpr const char* names[] = {"process",
                                   "load",
                                   "create",
                                   "create_automatically",
                                   "activate",
                                   "module_on_first_use",
                                   "first_run",
                                   "second_thread",
                                   "allocate",
                                   "cuModuleLoadData",
                                   "cuModuleLoadData_beside_a_capture",
                                   "cuGreenCtxCreate",
                                   "poll",
                                   "deactivate",
                                   "destroy",
                                   "unload_library",
                                   "release",
                                   "cuMemFree",
                                   "other_ends",
                                   "cuCtxSynchronize",
                                   "close_tenant",
                                   "close_tenant_with_a_context",
                                   "close_broker",
                                   "use_device",
                                   "realtime",
                                   "peer_access",
                                   "shared_memory",
                                   "unload_idle_modules",
                                   "force_loss",
                                   "graph",
                                   "preset",
                                   "poll_beside_a_renewal",
                                   "create_beside_an_end",
                                   "stream_beside_a_load"};
  return names[static_cast<std::size_t>(call)];
}

// Of the guilty one and of its neighbour; the call; whether the broker knows what hangs.
using Cell = std::tuple<LeaseKind, LeaseKind, Call, bool>;

inline std::string cell_name(const Cell& cell) {
  const auto& [guilty, innocent, call, known] = cell;
  return std::string(to_string(guilty)) + "_" + to_string(innocent) + "_" + name_of(call) +
         (known ? "_known" : "_unknown");
}

inline constexpr LeaseKind kinds[] = {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green};

// With it, the tenants of a cell have memory from pools of their own.
inline constexpr char pools_variable[] = "CTXBROKER_TEST_POOLS";

// A cell prints it in front of how long a call took.
inline constexpr char took_text[] = "took ms: ";

}  // namespace ctxbroker
