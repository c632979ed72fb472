// What the gate asks of the room above it: the leases of an open tenant.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "context/guard.hpp"
#include "context/lease.hpp"
#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

struct TranslatedLease {
  GuardTarget target;
  LeaseKind kind = LeaseKind::shared;
  std::shared_ptr<Borrowers> borrowers;
  // The context whose memory it uses, and the generation of that.
  CUcontext memory_context = nullptr;
  std::uint64_t memory_generation = 0;
};

// One generation of a lease, for what outlives it.
struct LeaseGeneration {
  std::uint64_t generation = 0;  // 0: not of the tenant's leases
  int device = 0;
  LeaseKind kind = LeaseKind::shared;
  std::uint64_t primary_generation = 0;  // the generation of the primary that it stands on
};

// What a wait for work of a context of the tenant's leases has to look at.
struct Waiting {
  std::shared_ptr<HungWork> family;  // null: it is none of theirs
  GuardTarget there{};
  bool for_neighbours = false;  // a wait for all work of the context waits for the neighbours' too
  bool meets_hung = false;      // and for work that hangs
};

// Any thread.
class LeaseSource {
 public:
  virtual ~LeaseSource() = default;
  // The tenant's lease on a device, made when there is none.
  virtual CUresult lease(int device, TranslatedLease* lease) noexcept = 0;
  // Whether there is one, and in force.
  virtual bool has_lease(int device) noexcept = 0;
  // The device whose primary context this is, or that this context of the tenant's leases is on;
  // -1: neither.
  virtual int device_of(CUcontext context) noexcept = 0;
  // The device that the broker has not used yet and whose primary context this is: the runtime
  // library knows the handle before there is such a context. That device is in use from then on.
  virtual int unused_device_of(CUcontext context) noexcept = 0;
  // The device of a generation of the tenant's leases whose context has ended, and was this one;
  // -1: of none.
  virtual int device_of_ended(CUcontext context) noexcept = 0;
  // Device memory is short where this context is: true when something was given up.
  virtual bool relieve(CUcontext context) noexcept = 0;
  // A context of the tenant's leases.
  virtual bool holds(CUcontext context) noexcept = 0;
  virtual int device_count() noexcept = 0;
  // The generation that a context is of; none when it is of none that stands.
  virtual LeaseGeneration generation_of(CUcontext context) noexcept = 0;
  // Where to be current to end what was made in that generation: things of the context itself
  // (streams), or of the primary's memory, which outlives a green context. Nothing when they are
  // gone with it.
  virtual std::optional<GuardTarget> end_target(const LeaseGeneration& made_in,
                                                Home home) noexcept = 0;
  // Ends something that was made in that generation; as Lease::give_back.
  virtual std::optional<CUresult> end(const LeaseGeneration& made_in,
                                      Lease::Thing thing) noexcept = 0;
  // What a wait in that context of the tenant's leases meets.
  virtual Waiting waiting(CUcontext context) noexcept = 0;
};

}  // namespace ctxbroker::detail
