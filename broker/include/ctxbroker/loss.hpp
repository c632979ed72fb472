// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a tenant is told when it loses a lease.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

/// Why a lease's context is gone. The numbers are those of CTXB_LOSS_* in plugin.h.
enum class LossReason : std::uint32_t {
  given_up = 1,  ///< The host gave the context up (Broker::force_loss), or its handles went bad.
  /// Somebody destroyed the context, or its work waits for a neighbour's hung work.
  destroyed = 2,
  fault = 3,  ///< A kernel faulted. CUDA has ended in this process, for every tenant.
  hung = 4,   ///< Work on the device hung. The lease takes no new work.
};

/// The reason's name: "given_up", "destroyed", "fault" or "hung". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(LossReason reason) noexcept;

/// One generation of a tenant's lease that was lost. Every stream, module and address of it is
/// dead.
struct LeaseLoss {
  TenantId tenant;               ///< Whose lease it was.
  int device = 0;                ///< The lease's device, as a CUDA device ordinal.
  std::uint64_t generation = 0;  ///< The generation that was lost; see LeaseInfo::generation.
  LossReason reason = LossReason::given_up;
  /// The CUresult that stands for the reason, or 0 when the host gave the context up.
  int driver_status = 0;
  std::string text;  ///< The same in one sentence, for a log.
};

/// Takes one loss. Broker::poll calls it, on the thread that calls poll and without a lock held, so
/// it may use the broker and its tenants. It must not destroy the broker, because poll goes on
/// using it, and Broker::close throws `wrong_state` there. An exception from it leaves poll, and
/// that loss is not reported again.
using LossCallback = std::function<void(const LeaseLoss&)>;

}  // namespace ctxbroker
