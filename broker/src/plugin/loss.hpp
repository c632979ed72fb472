// SPDX-License-Identifier: Apache-2.0
// Describes the loss of a context for the plug-in and the host, and says who is to blame.
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

// Describes the loss of a lease that is no longer ready.
LeaseLoss describe_loss(const Lease& lease);

// Describes the loss for an instance in that lease. It blames an instance for a fault only when no
// work but that instance's was in flight in the whole broker, and no tenant that the host opened
// can have had work.
Loss describe_loss(const Instance& instance);

}  // namespace ctxbroker::detail
