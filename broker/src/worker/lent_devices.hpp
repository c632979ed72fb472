// SPDX-License-Identifier: Apache-2.0
// Device memory that a graph in a worker shares: the host's, which is lent, and relays between
// processes. Only the thread that calls the graph uses this.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "process/child.hpp"
#include "process/maker.hpp"

namespace ctxbroker::detail {

class GraphClient;
struct LentDevices;

struct LentDevice {
  std::weak_ptr<LentDevices> owner;  // it ends with its graph
  const Maker maker;
  std::uint64_t handle = 0;
  std::uint64_t address = 0, bytes = 0;
  int device = 0;
  bool is_made = false;  // each process makes it anew, for another one
  // The memory's descriptor, for each process to come. Memory that a process makes has one here
  // until it is passed on.
  Descriptor file;
  unsigned jobs = 0;     // which use it
  bool is_over = false;  // and is taken back when they have ended
};

// The device memory that a graph is lent. It stays the graph's when a stand-by takes over with
// another process.
struct LentDevices {
  explicit LentDevices(GraphClient& its) : client(its) {}

  GraphClient& client;
  std::vector<std::shared_ptr<LentDevice>> all;
  std::uint64_t last_handle = 0;
};

}  // namespace ctxbroker::detail
