// Why a plug-in's context is gone.
#pragma once

#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

enum class LossReason : std::uint32_t {
  given_up = CTXB_LOSS_GIVEN_UP,    // by the host; the next activation gets another context
  destroyed = CTXB_LOSS_DESTROYED,  // by somebody; likewise
  fault = CTXB_LOSS_FAULT,          // a kernel faulted: CUDA has ended in this process
  stuck = CTXB_LOSS_STUCK,          // this plug-in's work does not end
};

enum class Guilt : std::uint32_t {
  unknown = CTXB_GUILT_UNKNOWN,
  innocent = CTXB_GUILT_INNOCENT,
  guilty = CTXB_GUILT_GUILTY,
};

// A view of the host's struct; valid during the call. A later host may know reasons and degrees of
// guilt that are not in the lists above.
class Loss {
 public:
  explicit Loss(const ctxb_loss& raw) noexcept : raw_(&raw) {}

  LossReason reason() const noexcept { return static_cast<LossReason>(raw_->reason); }
  Guilt guilt() const noexcept { return static_cast<Guilt>(raw_->guilt); }
  int driver_status() const noexcept { return raw_->driver_status; }  // CUresult, or 0
  const char* text() const noexcept { return raw_->text; }            // one sentence for a log

 private:
  const ctxb_loss* raw_;
};

}  // namespace ctxbroker::sdk
