// SPDX-License-Identifier: Apache-2.0
// Ends the things in the ledger: one at its holder's wish, or all that a holder leaves.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "ledger/ledger.hpp"

namespace ctxbroker::detail {

// Ends a thing that the broker made in a lease and that is not in the ledger any more. Works as
// Lease::give_back. The lease and its budget count the thing until it has ended. If the driver
// refuses, it is in the ledger again. `is_left`: its holder does not ask for it again.
std::optional<CUresult> end_in_lease(const Holding& holding, bool is_left) noexcept;

// The result of `release`, which ends a thing in the ledger at its holder's wish. There is no
// result, and no driver call, if that holder does not hold the thing. The lease and the budget
// count the thing until it has ended.
struct Released {
  CUresult status = CUDA_SUCCESS;  // also for what is put off
  std::uint64_t bytes = 0;
  bool is_still_held = false;  // the driver refused to end it, and so it has not ended
};
std::optional<Released> release(const Holder& holder, Kind kind, std::uint64_t handle) noexcept;

// Returns whether the status of an ending means that the driver refused it. What has ended with its
// context was not refused.
bool is_refusal(CUresult status) noexcept;

// The fate of a thing that its holder left.
struct LeftThing {
  enum class Fate {
    ended,
    refused,     // the driver refused to end it
    put_off,     // it has to wait for work that hangs
    of_code,     // it stays with code that stays in the process
    not_counted  // nobody is told: it was gone, or the tenant never asked for it
  };
  static constexpr std::size_t fate_count = static_cast<std::size_t>(Fate::not_counted) + 1;
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
// For what the broker made in leases. What the driver refuses to end stays in the ledger and
// counted, for end_given_up.
CUresult give_back(const Holder& holder, const Reason& reason);

// Tries again to end what the driver has refused to, of holders that have left it. `recorder`: of
// the tenants of one broker. `is_last`: what is refused once more is recorded and forgotten.
void end_given_up(const Recorder* recorder, bool is_last) noexcept;

}  // namespace ctxbroker::detail
