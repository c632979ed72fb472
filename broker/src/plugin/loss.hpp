// What a plug-in and the host are told about a lost context, and who is to blame.
#pragma once

#include <cstdint>
#include <string>

#include "ctxbroker/loss.hpp"

namespace ctxbroker::detail {

class Instance;
class Lease;

struct Loss {
  std::uint32_t reason = 0;  // CTXB_LOSS_*
  std::uint32_t guilt = 0;   // CTXB_GUILT_*
  int driver_status = 0;     // CUresult, or 0
  std::string text;          // one sentence
};

// Describes the loss of a lease that is not ready any more.
LeaseLoss describe_loss(const Lease& lease);

// Describes it for an instance in that lease. Guilt is only said with evidence: after a fault, when
// the work of just one instance of the whole broker was in flight, and no tenant that the host
// opened may have any.
Loss describe_loss(const Instance& instance);

}  // namespace ctxbroker::detail
