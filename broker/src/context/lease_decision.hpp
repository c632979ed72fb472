// Which kind of lease answers a request, and why.
#pragma once

#include <string>

#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

struct LeaseRequest {
  int device = 0;
  LeaseChoice asked;                  // by the host; automatic: left open
  std::string asked_by = "the host";  // who: "the host", "the policy for com.example.blur"
  LeaseChoice wish;                   // the plug-ins', when the host leaves it open
  std::string wished_by;              // which: "plug-in blur"
  // Names a plug-in of the tenant that uses CU_STREAM_PER_THREAD, which green contexts do not have.
  std::string per_thread_stream;
};

// What the device can give.
struct LeaseOffer {
  bool green = false;
  std::string no_green;  // why not
};

struct LeaseDecision {
  LeaseChoice choice;  // never automatic, never worker
  std::string reason;
};
LeaseDecision decide(const LeaseRequest& request, const LeaseOffer& offer);

// The stronger of what two plug-ins of one tenant need: private beats green beats shared beats
// open; between two partitions the larger.
LeaseChoice stronger(const LeaseChoice& a, const LeaseChoice& b) noexcept;

}  // namespace ctxbroker::detail
