// SPDX-License-Identifier: Apache-2.0
// One run of a foreign library in a child process: alone, or as a tenant in one kind of lease.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "ctxbroker/broker.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {

inline constexpr char foreign_alone[] = "alone";  // without the broker
inline constexpr const char* foreign_leases[] = {"shared", "private", "green", "auto"};

inline LeaseKind lease_kind(const std::string& name) {
  if (name == "shared") return LeaseKind::shared;
  if (name == "private") return LeaseKind::private_own;
  if (name == "green") return LeaseKind::green;
  return LeaseKind::automatic;
}

// Where "libcuda.so.1" is found without the broker: on any machine by itself, and the software
// device in a folder of its own.
inline std::string driver_search_path(const std::string& how) {
  return how == foreign_alone && driver_is_software() ? software_device_folder().string() : "";
}

// In the parent: plays `test` once more, as `how` says ("alone", or a kind of lease).
inline ChildResult play_foreign(const std::string& test, const std::string& how,
                                Environment environment = {}) {
  environment.emplace_back("CTXB_FOREIGN_LEASE", how);
  return run_child(test, environment);
}

// In the child: how it plays; empty if this is no such child.
inline std::string foreign_lease() {
  const char* how = std::getenv("CTXB_FOREIGN_LEASE");  // NOLINT(concurrency-mt-unsafe)
  return how == nullptr ? "" : how;
}

// In the child: a broker's options, with which it prints its warnings.
inline BrokerOptions printing_broker() {
  BrokerOptions options;
  options.host_name = "foreign libraries";
  options.records = [](const Record& record) {
    if (record.severity >= Severity::warning)
      std::printf("RECORD %s: %s\n", record.topic, record.text.c_str());
  };
  return options;
}

// In the child: what a careless neighbour does.
inline void reset_device() {
  std::printf("RESET %d\n", driver_call("cuDevicePrimaryCtxReset_v2", CUdevice{0}));
}

}  // namespace ctxbroker
