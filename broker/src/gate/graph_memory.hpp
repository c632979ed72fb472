// The memory that graphs allocate for themselves. The driver chooses its address when the node is
// added; then the graph names it, and so does each executable graph made of that. A launch
// allocates the memory. Where no node frees it, it outlives the graphs.
#pragma once

#include <vector>

#include "gate/gated_tenant.hpp"
#include "memory/ledger.hpp"

namespace ctxbroker::detail {

// A node of a graph (Kind::graph) allocates at this address. Any thread. Throws std::bad_alloc.
void name_graph_memory(std::uint64_t graph, std::uint64_t address);
// An executable graph was made of a graph, and names what that names.
void pass_on_graph_memory(std::uint64_t graph, std::uint64_t exec) noexcept;

// The tenant has freed it. It is held no longer, unless a graph still names it.
void forget_freed(GatedTenant& tenant, std::uint64_t address) noexcept;
// For a graph that is about to end, because its handle may be another graph's as soon as it has.
// The first returns what it named, and it names nothing any more. If the driver refused, the second
// gives the names back. Otherwise the third forgets what no graph names and no launch has
// allocated.
std::vector<std::uint64_t> take_graph_memory(Kind kind, std::uint64_t graph) noexcept;
void put_graph_memory_back(Kind kind, std::uint64_t graph,
                           std::vector<std::uint64_t> addresses) noexcept;
void forget_unallocated(GatedTenant& tenant, const std::vector<std::uint64_t>& addresses) noexcept;

// Whether memory at that address can still be the tenant's: a graph that it holds names it, or it
// has outlived its graphs. A capture that failed leaves names behind that belong to no graph.
bool may_be_allocated(const GatedTenant& tenant, std::uint64_t address) noexcept;

}  // namespace ctxbroker::detail
