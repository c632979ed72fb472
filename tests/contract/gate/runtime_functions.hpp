// SPDX-License-Identifier: Apache-2.0
// Every function of the runtime library, called by a bare process and by tenants, and where their
// results differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ctxbroker/lease.hpp"

namespace ctxbroker {

inline const std::vector<std::string> link_modes = {"static", "shared"};
// Kinds of leases, one bit each.
inline constexpr unsigned in_shared = 1, in_private = 2, in_green = 4, in_partition = 8;
struct LeasePlace {
  const char* name;
  unsigned bit;
  LeaseChoice choice;
};
const std::vector<LeasePlace>& lease_places();  // shared, private, green, green:16
inline constexpr const char* bare = "bare";     // the place without a broker

// The results of all functions in one place.
struct FunctionResults {
  std::vector<std::string> names;              // in the order of the calls
  std::map<std::string, std::string> answers;  // by name: the status, then the results
  std::map<std::string, std::string> said;     // the broker's warnings, by function
  std::string device;                          // its name, and the driver's version
  std::vector<std::string> complaints;         // memory outside of the lease; left after close
  std::string why_not;                         // the child process could not begin, with its output
};
// Runs the functions in child processes: one, and one more after each call that ends the process
// or does not return. Keeps the results, and runs each place once.
const FunctionResults& functions_in(const std::string& place, const std::string& link_mode);

// A difference that is meant.
struct AllowedDifference {
  const char* function;
  unsigned places;  // in_shared | ...
  const char* why;  // a sentence for docs/runtime_functions.md, with what to do instead
};
const std::vector<AllowedDifference>& allowed_differences();

// Complaints about differences that nobody has allowed, about allowed ones that are not there, and
// about functions that have run in one of the places only.
std::vector<std::string> compare(const FunctionResults& alone, const FunctionResults& leased,
                                 unsigned place, const std::vector<AllowedDifference>& meant);

// A part of an answer in a lease, and what stands in its place in that of a bare process.
struct DifferentPart {
  std::string leased, alone;
  bool operator==(const DifferentPart&) const = default;
};
// The parts that differ, statuses first, each once. The error that is left is one only if nothing
// else differs.
std::vector<DifferentPart> different_parts(const std::string& leased, const std::string& alone);

// docs/runtime_functions.md.
std::string runtime_function_page();

}  // namespace ctxbroker
