// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much a tenant's code may hold of what the driver gives, beside device memory.
#pragma once

#include <cstdint>
#include <optional>

namespace ctxbroker {

/// Limits for what a tenant's code holds through its own driver calls. Beyond a limit, a call
/// answers CUDA_ERROR_OUT_OF_MEMORY, and a record with the topic "gate" says which limit it was.
/// They need the gate, which counts.
///
/// A member that is not set leaves the limit to the policy. If the policy says nothing either, the
/// default applies. 0: no limit. Device memory has its own: TenantOptions::driver_memory_budget.
struct DriverLimits {
  /// Pinned host memory, in bytes: allocated by the driver, or registered with it. Default: half of
  /// the machine's memory.
  std::optional<std::uint64_t> pinned_memory;
  std::optional<std::uint64_t> streams;   ///< Default: 4,096.
  std::optional<std::uint64_t> events;    ///< Default: 65,536.
  std::optional<std::uint64_t> graphs;    ///< Graphs and executable graphs. Default: 16,384.
  std::optional<std::uint64_t> modules;   ///< Modules and libraries. Default: 16,384.
  std::optional<std::uint64_t> contexts;  ///< Contexts and green contexts. Default: 64.
};

}  // namespace ctxbroker
