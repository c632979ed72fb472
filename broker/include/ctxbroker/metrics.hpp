// What plug-ins have used so far. Snapshots; reading them takes no lock that a launch would wait
// for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

struct Metrics {
  std::uint64_t jobs = 0;
  std::uint64_t launches = 0;
  std::uint64_t graph_jobs = 0;    // of the jobs: launched as one graph
  double device_seconds = 0;       // measured with events around each job's work
  std::uint64_t memory_bytes = 0;  // device memory held now, lent buffers not counted
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t strikes = 0;  // recorded breaches of the plug-in contract
};

// One life of a lease: since its context was made, by all who used it, also those that have ended.
struct LeaseMetrics {
  int device = 0;
  LeaseChoice granted;
  LeaseState state = LeaseState::ready;
  std::uint64_t generation = 0;
  std::uint64_t guards_entered = 0;  // without those inside another guard of the same lease
  std::uint64_t jobs = 0;
  std::uint64_t launches = 0;
  double device_seconds = 0;
  std::uint64_t memory_bytes = 0;  // device memory that the tenant asked for and holds now
  std::uint64_t memory_peak_bytes = 0;
  // Held now, by plug-ins and by the broker for them.
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t modules = 0;
  std::uint64_t allocations = 0;   // of device and pinned host memory
  std::uint64_t graphs = 0;        // executable ones, of jobs
  std::uint64_t module_bytes = 0;  // of the images of those modules
  // Since its context was made. A reload is a load of what was loaded before: in an earlier life of
  // the lease, before it was unloaded for want of memory, or before its file changed.
  std::uint64_t module_loads = 0;  // reloads included
  std::uint64_t module_reloads = 0;
  std::uint64_t module_unloads = 0;
  double module_load_seconds = 0;  // compiling and linking included
};

struct InstanceMetrics {
  std::string plugin;            // its id
  std::uint64_t generation = 0;  // of the lease it is in
  Metrics metrics;
};

// Of what a tenant's code made through the driver and holds now.
struct HeldThings {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  // of device memory
};

// Calls of a tenant's code that wait for the device (synchronise, cuMemFree), on whatever thread.
struct DriverWaits {
  std::uint64_t count = 0;
  double seconds = 0;  // that threads were kept in them, all together
  double longest_seconds = 0;
};

struct TenantMetrics {
  TenantId id;
  std::string name;
  std::uint64_t strikes = 0;  // of all its instances, also those that have ended
  std::vector<LeaseMetrics> leases;
  std::vector<InstanceMetrics> instances;  // those that are there
  // Through the gate: how often its code called each guarded function of the driver, and what it
  // holds now of what it made there. Nothing without the gate.
  std::map<std::string, std::uint64_t> guarded_calls{};
  std::uint64_t held_bytes = 0;  // device memory
  std::uint64_t held_things = 0;
  std::map<std::string, HeldThings> held{};  // the same by kind: "stream", "device memory"
  DriverWaits waits{};
};

struct BrokerMetrics {
  std::vector<TenantMetrics> tenants;  // by id, the host first
};

// As JSON, with the schema "ctxbroker.metrics/1": members are only ever added to it. Bytes of a
// name that are no UTF-8 become U+FFFD.
CTXB_API std::string to_json(const BrokerMetrics& metrics);

}  // namespace ctxbroker
