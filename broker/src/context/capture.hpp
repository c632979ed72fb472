// Leases that the gate made current on a thread because code of their tenant asked for the primary
// context. While captured they count as entered, so that no lease ends under a thread.
#pragma once

#include <cstdint>

#include "context/occupancy.hpp"

namespace ctxbroker::detail {

// One thread's, within one guard. Its owner calls leave_all: it lives in frames, which have no
// destructor.
class Captures {
 public:
  // The context for this thread in the lease behind `occupancy`: the one that was captured before,
  // or a newly entered one.
  CUresult enter(Occupancy& occupancy, std::uint64_t generation, CUcontext* context) noexcept;
  bool has(CUcontext context) const noexcept;
  bool empty() const noexcept { return first_ == nullptr; }
  void leave_all() noexcept;

 private:
  struct One;
  One* first_ = nullptr;
};

// Streams whose capture was begun within one guard and is not ended yet. A thread with an open
// capture may not call much; so none outlives its guard.
class OpenStreamCaptures {
 public:
  void begun(CUstream stream) noexcept;
  bool ended(CUstream stream) noexcept;  // false: it is none of these
  bool empty() const noexcept { return first_ == nullptr; }
  // The next one, which then is none of these any more; null when there is none.
  CUstream take() noexcept;

 private:
  struct One;
  One* first_ = nullptr;
};

}  // namespace ctxbroker::detail
