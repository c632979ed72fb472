// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which plug-ins share a process.
#pragma once

#include <optional>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// Which plug-ins of a WorkerGraph share a process. A crash ends only the plug-ins of its process,
/// and only they are suspects.
///
/// In one process, plug-ins hand their results to each other on the device. Between two processes,
/// a picture stays on the device if it is the only output of its process, and exactly one other
/// process reads it, once per job. Everything else goes through host memory. Two plug-ins do not
/// share a process if the processes would then wait for each other: in a row of A, B and A, the
/// second A has a process of its own. If a plug-in needs frames around the job's own one, every
/// plug-in in the processes that feed it runs once for each of these frames.
enum class WorkerGrouping {
  together,       ///< All of them do. This is the fastest.
  by_vendor,      ///< Those of one vendor do. Without a vendor, as by_plugin.
  by_plugin,      ///< The instances of one plug-in do.
  each_instance,  ///< Each plug-in has a process of its own.
  /// They are in the host's process, and a crash or a kernel's fault ends the host or its CUDA. For
  /// plug-ins that the host trusts, beside others that it does not. As a graph's choice, it does
  /// not hold for a plug-in that asks for LeaseKind::worker: that is grouped as by_plugin says.
  in_host,
};

/// Returns "together", "by-vendor", "by-plug-in", "each-instance" or "in-host". Static text.
/// Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(WorkerGrouping grouping) noexcept;
/// Reads what to_string returns. Returns nothing for any other text. Thread-safe.
[[nodiscard]] CTXB_API std::optional<WorkerGrouping> parse_worker_grouping(
    std::string_view text) noexcept;

}  // namespace ctxbroker
