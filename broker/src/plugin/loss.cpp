// SPDX-License-Identifier: Apache-2.0
#include "plugin/loss.hpp"

#include <array>

#include "context/lease.hpp"
#include "ctxbroker/plugin.h"
#include "driver/driver_error.hpp"
#include "observe/enum_names.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker {

static_assert(static_cast<std::uint32_t>(LossReason::given_up) == CTXB_LOSS_GIVEN_UP &&
              static_cast<std::uint32_t>(LossReason::destroyed) == CTXB_LOSS_DESTROYED &&
              static_cast<std::uint32_t>(LossReason::fault) == CTXB_LOSS_FAULT &&
              static_cast<std::uint32_t>(LossReason::hung) == CTXB_LOSS_HUNG);

const char* to_string(LossReason reason) noexcept {
  constexpr std::array names{"unknown", "given_up", "destroyed", "fault", "hung"};  // from 1
  return detail::name_of(names, reason);
}

namespace detail {
namespace {

std::uint32_t guilt_of(LossReason reason, const Instance& instance) {
  switch (reason) {
    case LossReason::given_up:
      return CTXB_GUILT_INNOCENT;
    case LossReason::destroyed:
      return CTXB_GUILT_UNKNOWN;
    case LossReason::hung:
    case LossReason::fault:
      break;
  }
  if (!instance.in_flight()) return CTXB_GUILT_INNOCENT;
  if (reason == LossReason::fault) {
    const char* const owner = fault_details(instance.lease()->table()).owner;
    if (owner != nullptr && owner != instance.tenant().lasting_name) return CTXB_GUILT_INNOCENT;
  }
  const bool alone =
      reason == LossReason::hung ? instance.hung_alone() : instance.broker().suspects() == 1;
  return alone ? CTXB_GUILT_GUILTY : CTXB_GUILT_UNKNOWN;
}

}  // namespace

LeaseLoss describe_loss(const Lease& lease) {
  LeaseLoss loss;
  loss.tenant = lease.tenant().id;
  loss.device = lease.device_ordinal();
  loss.generation = lease.generation();
  const LeaseState state = lease.state();
  if (state == LeaseState::ended) {
    loss.reason = LossReason::fault;
    loss.driver_status = lease.device().fault().status();
    loss.text = "CUDA has ended in this process after " +
                status_text(lease.table(), lease.device().fault().status());
  } else if (state == LeaseState::hung) {
    loss.reason = LossReason::hung;
    loss.driver_status = CUDA_ERROR_TIMEOUT;
    loss.text = "the work in this lease exceeded its timeout";
  } else if (lease.is_hung()) {
    loss.reason = LossReason::destroyed;
    loss.driver_status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    loss.text = "the work in this lease waits for hung work of a neighbour";
  } else if (lease.ended_early() || lease.end_target(Home::context)) {
    // Not destroyed: what is in it can still be given back, or was.
    loss.reason = LossReason::given_up;
    loss.text = "the host gave the context up";
  } else {
    loss.reason = LossReason::destroyed;
    loss.driver_status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    loss.text = "the context was destroyed";
  }
  return loss;
}

Loss describe_loss(const Instance& instance) {
  LeaseLoss loss = describe_loss(*instance.lease());
  return {static_cast<std::uint32_t>(loss.reason), guilt_of(loss.reason, instance),
          loss.driver_status, std::move(loss.text)};
}

}  // namespace detail
}  // namespace ctxbroker
