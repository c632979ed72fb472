// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tenants and plug-ins have used so far, and what they hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/memory_source.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

/// The figures of one plug-in instance, since it was created.
struct Metrics {
  std::uint64_t jobs = 0;               ///< Completed jobs.
  std::uint64_t launches = 0;           ///< Kernels launched through the broker.
  std::uint64_t graph_jobs = 0;         ///< The jobs that ran as one graph.
  std::uint64_t late_jobs = 0;          ///< Jobs whose work here had not ended at their deadline.
  double device_seconds = 0;            ///< The time of measured jobs: see GraphOptions::measure.
  std::uint64_t memory_bytes = 0;       ///< Device memory that it holds now, without jobs' buffers.
  std::uint64_t memory_peak_bytes = 0;  ///< The most that it held at once.
  std::uint64_t strikes = 0;            ///< Recorded breaches of the plug-in contract.
};

/// The figures of one generation of a lease, summed over all its users, including those that have
/// ended.
struct LeaseMetrics {
  int device = 0;       ///< CUDA device ordinal.
  LeaseChoice granted;  ///< As LeaseInfo::granted.
  LeaseState state = LeaseState::ready;
  std::uint64_t generation = 0;
  std::uint64_t guards_entered = 0;  ///< Guards, without those inside another guard of the lease.
  std::uint64_t jobs = 0;            ///< Completed jobs.
  std::uint64_t launches = 0;        ///< Kernels launched through the broker.
  double device_seconds = 0;         ///< The time of measured jobs on the device.
  std::uint64_t memory_bytes = 0;    ///< Device memory that the tenant asked for and holds now.
  std::uint64_t memory_peak_bytes = 0;  ///< The most that was held at once.
  std::uint64_t streams = 0;            ///< Streams that exist now, the broker's own included.
  std::uint64_t events = 0;             ///< Events that exist now, the broker's own included.
  /// Modules that are loaded now, also those that no activation uses.
  std::uint64_t modules = 0;
  std::uint64_t allocations = 0;   ///< Pieces of device and pinned host memory held now.
  std::uint64_t graphs = 0;        ///< Executable graphs of jobs that exist now.
  std::uint64_t module_bytes = 0;  ///< Bytes of the loaded modules' images.
  std::uint64_t module_loads = 0;  ///< Loads of modules, reloads included.
  /// Loads that repeat an earlier one: after a loss, after an unload, or after the module's file
  /// changed.
  std::uint64_t module_reloads = 0;
  std::uint64_t module_unloads = 0;
  double module_load_seconds = 0;  ///< Time for loads, compiling and linking included.
};

/// One plug-in instance that exists now.
struct InstanceMetrics {
  std::string plugin;            ///< The plug-in's id.
  std::uint64_t generation = 0;  ///< The generation of its lease.
  Metrics metrics;
};

/// Resources of one kind that a tenant's code made through the driver and still holds.
struct HeldThings {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  ///< The device memory that they take.
};

/// The driver calls of a tenant's code that waited for the device: synchronise, cuMemFree, ...
struct DriverWaits {
  std::uint64_t count = 0;
  double seconds = 0;          ///< The time that all threads together spent in them.
  double longest_seconds = 0;  ///< The longest one.
};

/// Calls of one name that held up a tenant's neighbours in real-time sessions: see
/// Broker::begin_realtime.
struct RealtimeTotals {
  std::uint64_t count = 0;     ///< Calls that were made, without those that were refused.
  double seconds = 0;          ///< The time that all threads together spent in them.
  double longest_seconds = 0;  ///< The longest one.
  std::uint64_t refused = 0;   ///< Calls that were refused: see RealtimePolicy::refuse.
};

/// The figures of one tenant.
struct TenantMetrics {
  TenantId id;
  std::string name;
  std::uint64_t strikes = 0;  ///< Including those of instances that have ended.
  /// The present source of its device memory; never `automatic`.
  MemorySource memory = MemorySource::driver;
  /// Device memory that the tenant's pools keep without using it.
  std::uint64_t store_unused_bytes = 0;
  std::vector<LeaseMetrics> leases;
  std::vector<InstanceMetrics> instances;
  /// How often its code called each guarded driver function, by the function's name. This and the
  /// members below need the gate and are empty without it.
  std::map<std::string, std::uint64_t> guarded_calls{};
  std::uint64_t held_bytes = 0;              ///< Device memory that its code took and still holds.
  std::uint64_t held_things = 0;             ///< How many resources its code made and still holds.
  std::map<std::string, HeldThings> held{};  ///< The same by kind: "stream", "device memory", ...
  DriverWaits waits{};
  /// The calls for this tenant that held up its neighbours in real-time sessions, by name. Calls of
  /// its code have the name of the driver's function, without a version: "cuMemAlloc". Counting
  /// them needs the gate. Calls of the host and of the broker are "create", "activate",
  /// "deactivate", "allocate", "release", "make lease", "end lease", "load module" and
  /// "unload module". If one of these calls makes another, both are counted.
  std::map<std::string, RealtimeTotals> realtime{};
};

/// Resources that the broker could not free yet: the driver would have waited for hung work, or a
/// thread outside of all guards still has the context current. The broker frees them when that work
/// ends, or at a Broker::poll after the thread has left the context. Until then their bytes count
/// as held. The list also has resources that the driver refused to free when a tenant or an
/// activation ended. Broker::poll and Broker::close try to free them again.
struct PutOffMetrics {
  TenantId tenant;          ///< The tenant that held them.
  std::string tenant_name;  ///< The tenant's name.
  int device = 0;           ///< CUDA device ordinal.
  std::string what;         ///< What they are, such as "device memory" or "stream".
  std::uint64_t count = 0;  ///< How many.
  std::uint64_t bytes = 0;  ///< Their device memory, in bytes.
};

/// A library that a pattern of the policy gave to a tenant; see LibraryPattern.
struct LibraryMetrics {
  std::string path;         ///< The library's real path.
  TenantId tenant;          ///< The tenant that it belongs to.
  std::string tenant_name;  ///< The tenant's name.
  std::string pattern;      ///< LibraryPattern::match of the pattern.
};

/// A pattern of the policy that matched only libraries that earlier patterns had taken; see
/// LibraryPattern.
struct LatePattern {
  std::string pattern;      ///< LibraryPattern::match.
  std::string tenant_name;  ///< LibraryPattern::tenant.
  std::string taken_by;     ///< LibraryPattern::match of the pattern that took the first one.
  std::string taken_for;    ///< LibraryPattern::tenant of that pattern.
};

/// Calls of one library that would have destroyed a primary context, and that the driver refused
/// because of the shield. Only calls of code that belongs to no tenant are counted, and only with
/// BrokerOptions::shield_host.
struct RefusedCalls {
  std::string function;     ///< The driver function: "cuDevicePrimaryCtxReset_v2".
  std::string library;      ///< The file of the library, or of the program, that called it.
  int device = 0;           ///< CUDA device ordinal.
  std::uint64_t count = 0;  ///< The number of calls.
};

/// A snapshot. Taking one does not delay a launch.
struct BrokerMetrics {
  std::vector<TenantMetrics> tenants;       ///< In the order of their ids, the host first.
  std::vector<PutOffMetrics> put_off{};     ///< Usually empty.
  std::vector<LibraryMetrics> libraries{};  ///< In the order of their paths.
  /// The patterns of the policy that have matched no library so far. Patterns with the tenant "*"
  /// match only libraries of packages that use CUDA. These do not count as matches: the program,
  /// libraries that serve the whole process, such as the C library and the driver, and libraries
  /// that another broker's patterns took.
  std::vector<std::string> unmatched_patterns{};
  /// The patterns that have matched only libraries that earlier patterns had taken.
  std::vector<LatePattern> late_patterns{};
  std::vector<RefusedCalls> refused{};  ///< In the order of the functions. Usually empty.
};

/// Writes metrics as JSON text.
///
/// The text follows the schema "ctxbroker.metrics/1". Later versions of the broker only add members
/// to it. Bytes of a name that are not UTF-8 become U+FFFD.
///
/// @return one JSON object. Thread-safe.
[[nodiscard]] CTXB_API std::string to_json(const BrokerMetrics& metrics);

}  // namespace ctxbroker
