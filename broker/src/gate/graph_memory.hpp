// The memory that graphs allocate for themselves. Its address is a graph's from its node on, and an
// executable graph's; a launch allocates it, and what no node frees outlives both.
#pragma once

#include <vector>

#include "gate/gated_tenant.hpp"
#include "gate/owners.hpp"

namespace ctxbroker::detail {

// `graph` is of Kind::graph or Kind::graph_exec; all are handles in the owners' book. Any thread.
// Throws std::bad_alloc.
void name_graph_memory(std::uint64_t graph, std::uint64_t address);
// An executable graph was made of a graph.
void pass_on_graph_memory(std::uint64_t graph, std::uint64_t exec) noexcept;

// The tenant has freed it: where no graph names it any more, it is held no longer.
void forget_freed(GatedTenant& tenant, std::uint64_t address) noexcept;
// What a graph names, which is about to end: its handle may be another's as soon as it has. Named
// again when it could not be ended; else what no graph names and nobody has allocated is forgotten.
std::vector<std::uint64_t> take_graph_memory(Kind kind, std::uint64_t graph) noexcept;
void put_graph_memory_back(Kind kind, std::uint64_t graph,
                           std::vector<std::uint64_t> addresses) noexcept;
void forget_unallocated(GatedTenant& tenant, const std::vector<std::uint64_t>& addresses) noexcept;

// Whether what stands at that address can still be the tenant's: a graph that it holds names it, or
// it has outlived its graphs. A capture that failed leaves names of no graph behind.
bool may_be_allocated(const GatedTenant& tenant, std::uint64_t address) noexcept;

}  // namespace ctxbroker::detail
