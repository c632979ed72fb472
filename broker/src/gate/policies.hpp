// Every policy of the gate, by room of the driver.
#pragma once

#include <cstddef>
#include <span>

#include "gate/policy.hpp"

namespace ctxbroker::detail {

std::span<const PolicyRow> primary_policies() noexcept;         // retain, release, reset, state
std::span<const PolicyRow> flag_policies() noexcept;            // of contexts
std::span<const PolicyRow> current_policies() noexcept;         // set, push, pop
std::span<const PolicyRow> context_policies() noexcept;         // create, destroy, limits
std::span<const PolicyRow> peer_policies() noexcept;            // access to other devices
std::span<const PolicyRow> memory_policies() noexcept;          // device and host memory, arrays
std::span<const PolicyRow> virtual_memory_policies() noexcept;  // addresses, physical memory
std::span<const PolicyRow> pool_policies() noexcept;            // pools, and what comes of them
std::span<const PolicyRow> object_policies() noexcept;          // modules, streams, events
std::span<const PolicyRow> graph_policies() noexcept;           // graphs and captures
std::span<const PolicyRow> wait_policies() noexcept;            // synchronise
std::span<const PolicyRow> process_policies() noexcept;         // profiler, core dumps, callbacks

// A policy's place among all of them, in the order above.
std::size_t policy_count() noexcept;
const PolicyRow& policy_at(std::size_t index) noexcept;

}  // namespace ctxbroker::detail
