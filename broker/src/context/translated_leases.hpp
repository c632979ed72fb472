// What the gate remembers for one guard: leases that it made current, and open stream captures.
#pragma once

#include <cstdint>

#include "context/lease_users.hpp"

namespace ctxbroker::detail {

// Leases that the gate made current inside one guard, because code of their tenant asked for the
// primary context. The thread stays inside them until the guard ends, so that no lease ends under
// it. Frames have no destructor, so their owner calls leave_all.
class TranslatedLeases {
 public:
  // Fills in the context of the lease for this thread, which enters the lease at the first call.
  CUresult enter(LeaseUsers& users, std::uint64_t generation, CUcontext* context) noexcept;
  bool has(CUcontext context) const noexcept;
  bool empty() const noexcept { return first_ == nullptr; }
  void leave_all() noexcept;

 private:
  struct One;
  One* first_ = nullptr;
};

// Streams whose capture was begun within one guard and has not ended. The driver refuses many calls
// of a thread with an open capture, so the guard ends what is left.
class OpenStreamCaptures {
 public:
  void begun(CUstream stream) noexcept;
  bool ended(CUstream stream) noexcept;  // false: the stream is not in the list
  bool empty() const noexcept { return first_ == nullptr; }
  // Removes one and returns it; null when the list is empty.
  CUstream take() noexcept;

 private:
  struct One;
  One* first_ = nullptr;
};

}  // namespace ctxbroker::detail
