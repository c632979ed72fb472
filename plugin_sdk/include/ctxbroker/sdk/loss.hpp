// SPDX-License-Identifier: Apache-2.0
/// @file
/// Why a plug-in's context is gone.
#pragma once

#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

/// What happened to the context.
enum class LossReason : std::uint32_t {
  given_up = CTXB_LOSS_GIVEN_UP,  ///< The host gave it up. The next activation gets another one.
  /// Somebody destroyed it, or its work waits for a neighbour's hung work. The next activation gets
  /// another one.
  destroyed = CTXB_LOSS_DESTROYED,
  fault = CTXB_LOSS_FAULT,  ///< A kernel faulted. CUDA has ended in this process.
  hung = CTXB_LOSS_HUNG,    ///< Work exceeded its timeout. The host stops using the plug-in.
};

/// Whether this instance is to blame.
enum class Guilt : std::uint32_t {
  unknown = CTXB_GUILT_UNKNOWN,  ///< Work of others was in flight too, or may have been.
  /// None of this instance's work was in flight, or the host gave the context up.
  innocent = CTXB_GUILT_INNOCENT,
  guilty = CTXB_GUILT_GUILTY,  ///< Only this instance's work was in flight.
};

/// What Plugin::context_lost gets. It is valid during the call. A later host can have reasons and
/// degrees of guilt that are not in the lists above.
class Loss {
 public:
  /// Only the SDK constructs one.
  explicit Loss(const ctxb_loss& raw) noexcept : raw_(&raw) {}

  [[nodiscard]] LossReason reason() const noexcept { return static_cast<LossReason>(raw_->reason); }
  [[nodiscard]] Guilt guilt() const noexcept { return static_cast<Guilt>(raw_->guilt); }
  /// The CUresult, or 0 when there is none.
  [[nodiscard]] int driver_status() const noexcept { return raw_->driver_status; }
  /// The same in one sentence.
  [[nodiscard]] const char* text() const noexcept { return raw_->text; }

 private:
  const ctxb_loss* raw_;
};

}  // namespace ctxbroker::sdk
