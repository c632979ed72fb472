#include "plugin/loss.hpp"

#include "ctxbroker/plugin.h"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

std::uint32_t guilt_of_fault(const Instance& instance) {
  if (!instance.in_flight()) return CTXB_GUILT_INNOCENT;
  return instance.broker().suspects() == 1 ? CTXB_GUILT_GUILTY : CTXB_GUILT_UNKNOWN;
}

Loss fault(const Instance& instance) {
  const CUresult status = instance.broker().fault().status();
  return {CTXB_LOSS_FAULT, guilt_of_fault(instance), status,
          "CUDA has ended in this process after " +
              status_text(instance.broker().driver().table, status)};
}

}  // namespace

Loss describe_loss(const Instance& instance) {
  const Lease& lease = *instance.lease();
  switch (lease.state()) {
    case LeaseState::ended:
      return fault(instance);
    case LeaseState::zombie:
      return {CTXB_LOSS_STUCK, CTXB_GUILT_GUILTY, CUDA_ERROR_TIMEOUT,
              "the work in this lease does not end"};
    case LeaseState::ready:
    case LeaseState::lost:
      break;
  }
  // Not destroyed: what is in it can still be given back.
  if (lease.end_target(Home::context)) {
    return {CTXB_LOSS_GIVEN_UP, CTXB_GUILT_INNOCENT, 0, "the host gave the context up"};
  }
  return {CTXB_LOSS_DESTROYED, CTXB_GUILT_UNKNOWN, CUDA_ERROR_CONTEXT_IS_DESTROYED,
          "the context was destroyed, or waits for work that does not end"};
}

}  // namespace ctxbroker::detail
