// SPDX-License-Identifier: Apache-2.0
// Where the victim and its neighbour are, and where the neighbour's memory comes from.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ctxbroker/lease.hpp"
#include "ctxbroker/tenant.hpp"
#include "support/session.hpp"

namespace ctxbroker::bench {

struct Arrangement {
  const char* name;
  LeaseChoice victim, neighbour;
  bool neighbour_takes_the_rest;  // green: all multiprocessors that the victim leaves
  const char* description;
};

std::span<const Arrangement> arrangements() noexcept;

// The memory of a neighbour whose load takes some.
struct NeighboursMemory {
  const char* name;
  MemorySource source;  // for what goes through the gate
  bool is_gated;        // the load calls the driver through the gate, as a plug-in does
  const char* description;
};

std::span<const NeighboursMemory> neighbours_memories() noexcept;

// Two tenants in these places, for as long as this lives.
class Pair {
 public:
  Pair(Session& session, const Arrangement& arrangement, MemorySource neighbours);

  Tenant& victim() noexcept { return *victim_; }
  Tenant& neighbour() noexcept { return *neighbour_; }

 private:
  std::unique_ptr<Tenant> victim_, neighbour_;
};

}  // namespace ctxbroker::bench
