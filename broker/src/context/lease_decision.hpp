// SPDX-License-Identifier: Apache-2.0
// Which kind of lease answers a request, and why.
#pragma once

#include <string>

#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

struct LeaseRequest {
  int device = 0;
  LeaseChoice asked;                  // by the host; automatic when it does not care
  std::string asked_by = "the host";  // who: "the host", "the policy for com.example.blur"
  LeaseChoice wish;                   // of the plug-ins; counts when the host does not care
  std::string wished_by;              // which: "plug-in blur"
  // Names a plug-in of the tenant that uses CU_STREAM_PER_THREAD, which green contexts do not have.
  std::string per_thread_stream;
  // The tenant's code starts threads that know nothing of guards. They rely on one default stream,
  // so that all its threads work in one context.
  bool one_context = false;
};

// What the device offers.
struct LeaseOffer {
  bool green = false;
  std::string no_green;  // why it offers no green contexts
  // Names what hangs in the family of its primary context. The driver makes no green context there
  // and loads no module meanwhile. Empty: nothing is known to hang.
  std::string hung = {};
};

struct LeaseDecision {
  LeaseChoice choice;  // never automatic, never worker
  std::string reason;
  bool one_context = false;  // of a green lease: for all threads
};
LeaseDecision decide(const LeaseRequest& request, const LeaseOffer& offer);

// Returns the stronger of two choices of one tenant's plug-ins: private before green before shared
// before automatic. Of two partitions it returns the larger.
LeaseChoice stronger(const LeaseChoice& a, const LeaseChoice& b) noexcept;

}  // namespace ctxbroker::detail
