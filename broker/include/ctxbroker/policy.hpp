// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a host's users decide for plug-ins. docs/policy.schema.json describes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/driver_limits.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/memory_source.hpp"
#include "ctxbroker/placement.hpp"
#include "ctxbroker/worker_grouping.hpp"

namespace ctxbroker {

/// Says how the gate treats a call of a tenant's code that holds up the tenant's neighbours in a
/// real-time session: see Broker::begin_realtime.
enum class RealtimePolicy {
  count,  ///< The call is made and counted. This is the default.
  /// The call is counted as refused, and returns CUDA_ERROR_NOT_PERMITTED. Two kinds of calls are
  /// still made: calls that free or destroy something, because code cannot handle their refusal,
  /// and calls inside the host's own calls, such as create, activate and deactivate.
  refuse,
};

/// What a policy says of one plug-in or of all. A member that is not set leaves that choice open.
struct PluginPolicy {
  /// The lease. `automatic` follows the plug-ins' own wishes, even if Policy::for_all names a
  /// lease.
  std::optional<LeaseChoice> lease;
  /// The device.
  std::optional<Placement> placement;
  /// Device memory, in bytes, that one instance may allocate through the broker. 0: no limit.
  std::optional<std::uint64_t> memory_budget;
  /// Device memory, in bytes, that the plug-in's library may hold through its own driver calls. It
  /// needs the gate, which counts them. 0: no limit.
  std::optional<std::uint64_t> driver_memory_budget;
  /// The same for pinned memory, streams, events, graphs, modules and contexts.
  DriverLimits driver_limits{};
  /// The source of the device memory and pinned memory of the plug-in's whole library.
  std::optional<MemorySource> memory{};
  /// Pinned memory, in bytes, that the library's pool takes ahead of need:
  /// TenantOptions::pinned_ahead. If two entries for one library differ, the larger size applies.
  std::optional<std::uint64_t> pinned_ahead{};
  /// The treatment of the library's calls that hold up neighbours in a real-time session. If two
  /// entries for one library differ, `refuse` applies.
  std::optional<RealtimePolicy> realtime{};
  /// Which plug-ins it shares a process with, in a WorkerGraph. A Broker takes no notice.
  std::optional<WorkerGrouping> process{};
};

/// Says which tenant a library belongs to. This needs the gate.
///
/// Broker::open opens a tenant for each name. The gate gives the tenant its libraries when it first
/// meets them, whether the program links them or some code opens them. They need no Tenant::adopt.
/// The calls of a library that no pattern matches count as its caller's.
///
/// The same rules hold for a policy from JSON and for one that the host fills in. Broker::open
/// refuses (`invalid_argument`) a pattern that can match no library, and a tenant's name that is
/// not allowed.
struct LibraryPattern {
  /// A pattern for the library's whole real path: `*` stands for any text, with slashes too, `?`
  /// for one character, and `[abc]` for one of these characters. The pattern begins with `/`, `*`,
  /// `?` or `[`.
  std::string match;
  /// The tenant's name: "com.example.blur". It consists of letters, digits, `-`, `_` and `.`, and
  /// is not "host", which stands for all code that belongs to no tenant. Policy::by_id has the
  /// tenant's lease and limits under this name.
  ///
  /// "*" makes each package a tenant, named after the package, when one of its libraries uses CUDA.
  /// A package is a folder below `site-packages` or `dist-packages`, a plug-in in the folder
  /// `plugins` of such a package, a bundle (.bundle, .vst3), a folder named after its library, or a
  /// library with those beside it that it needs. Libraries in system folders and NVIDIA's own
  /// libraries are in no package.
  std::string tenant;
};

/// Decisions for plug-ins by their ids. What the host itself asks for (InstanceOptions,
/// TenantOptions) comes first, then `by_id`, then `for_all`.
///
/// A library has one lease on a device, so an entry for one of its plug-ins counts for all of them.
/// If two entries match, the stronger lease kind (private, green, shared), the smaller driver
/// memory budget and the smaller driver limits apply. MemorySource::driver applies before
/// MemorySource::pool. A plug-in whose descriptor has CTXB_PLUGIN_DRIVER_MEMORY gets
/// MemorySource::driver unless `by_id` says otherwise. An id that no loaded plug-in has is ignored.
struct Policy {
  PluginPolicy for_all;
  /// The key is a plug-in's id ("com.example.blur"), or the name of a tenant that the host or a
  /// pattern opens.
  std::map<std::string, PluginPolicy> by_id;
  std::vector<LibraryPattern> libraries{};  ///< The first pattern that matches counts.
};

/// Reads a policy from a file.
///
/// @param path  a JSON file.
/// @return the policy. Thread-safe.
/// @throws Error  `policy`, when the file cannot be read or used. The text names the file, the
///                place in it and what is allowed there.
[[nodiscard]] CTXB_API Policy read_policy(const std::filesystem::path& path);

/// Reads a policy from JSON text.
///
/// @param text  the whole JSON text.
/// @param name  what error texts call it, in place of a file name.
/// @return the policy. Thread-safe.
/// @throws Error  `policy`, as read_policy.
[[nodiscard]] CTXB_API Policy parse_policy(std::string_view text, const std::string& name);

}  // namespace ctxbroker
