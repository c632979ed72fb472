// SPDX-License-Identifier: Apache-2.0
// Ends the things in the ledger: one at its holder's wish, or all that a holder leaves.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ledger/ledger.hpp"

namespace ctxbroker::detail {

// Ends a thing that the broker made in a lease and that is not in the ledger any more. Works as
// Lease::give_back. The lease and its budget count the thing until it has ended.
std::optional<CUresult> end_in_lease(const Holding& holding) noexcept;

// The result of `release`, which ends a thing in the ledger at its holder's wish. There is no
// result, and no driver call, if that holder does not hold the thing. A thing that the driver
// refuses to end counts as given back, and give_back tries again.
struct Released {
  CUresult status = CUDA_SUCCESS;  // also for what is put off
  std::uint64_t bytes = 0;
};
std::optional<Released> release(const Holder& holder, Kind kind, std::uint64_t handle) noexcept;

// The fate of a thing that its holder left.
struct LeftThing {
  enum class Fate {
    ended,
    put_off,     // it has to wait for work that hangs
    of_code,     // it stays with code that stays in the process
    not_counted  // nobody is told: it was gone, or the tenant never asked for it
  };
  Fate fate = Fate::ended;
  CUresult status = CUDA_SUCCESS;
};
// Takes a thing out of the ledger, and ends it.
using EndLeftThing = std::function<LeftThing(const Holding&)>;

// Why things are given back.
struct Reason {
  const TenantIdentity& tenant;
  const DriverTable& driver;
  const char* left = "";  // the host is told what it was: "the tenant left"; empty: it is not told
};

// Ends all that a holder leaves, in the order of Kind, which the driver needs. This is the one way
// in which things end that nobody ends by name. What has to wait for work that hangs is put off,
// and stays counted until it has ended. Returns the first failure that the driver answered.
// Throws std::bad_alloc.
CUresult give_back(const Holder& holder, const Reason& reason, const EndLeftThing& end);
// For what the broker made in leases.
CUresult give_back(const Holder& holder, const Reason& reason);

}  // namespace ctxbroker::detail
