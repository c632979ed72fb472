// SPDX-License-Identifier: Apache-2.0
#include "qos/arrangement.hpp"

#include "ctxbroker/error.hpp"

namespace ctxbroker::bench {
namespace {

constexpr unsigned victims_part = 16;

const Arrangement arrangement_table[] = {
    {"partitions",
     {LeaseKind::green, victims_part},
     LeaseChoice(LeaseKind::green),
     true,
     "victim in green:16, neighbour in a green lease over all the rest"},
    {"green", LeaseChoice(LeaseKind::green), LeaseChoice(LeaseKind::green), false,
     "both in green leases over all multiprocessors"},
    {"shared", LeaseChoice(LeaseKind::shared), LeaseChoice(LeaseKind::shared), false,
     "both in the primary context"},
    {"private", LeaseChoice(LeaseKind::private_own), LeaseChoice(LeaseKind::private_own), false,
     "each in a private context"},
    {"left_in_primary",
     {LeaseKind::green, victims_part},
     LeaseChoice(LeaseKind::shared),
     false,
     "victim in green:16, neighbour left in the primary context"},
    {"beside_private",
     {LeaseKind::green, victims_part},
     LeaseChoice(LeaseKind::private_own),
     false,
     "victim in green:16, neighbour in a private context"},
};

const NeighboursMemory memory_table[] = {
    {"raw", MemorySource::driver, false, "the driver's own functions, past the gate"},
    {"driver", MemorySource::driver, true, "through the gate, with \"memory\": \"driver\""},
    {"pool", MemorySource::pool, true, "through the gate, with \"memory\": \"pool\""},
};

std::unique_ptr<Tenant> open(Session& session, const char* name, const LeaseChoice& choice,
                             MemorySource memory = MemorySource::automatic) {
  TenantOptions options;
  options.lease = choice;
  options.memory = memory;
  auto tenant = std::make_unique<Tenant>(session.broker().open_tenant(name, options));
  tenant->lease();
  return tenant;
}

// Multiprocessors come in groups, and some may belong to none: ask for fewer until it fits.
std::unique_ptr<Tenant> open_in_the_rest(Session& session, const char* name, unsigned taken,
                                         MemorySource memory) {
  const auto all = static_cast<unsigned>(session.device().multiprocessors);
  for (unsigned wanted = all - taken; wanted > 1; --wanted) {
    try {
      return open(session, name, {LeaseKind::green, wanted}, memory);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::lease_unavailable) throw;
    }
  }
  return open(session, name, {LeaseKind::green, 1}, memory);
}

}  // namespace

std::span<const Arrangement> arrangements() noexcept {
  return arrangement_table;
}

std::span<const NeighboursMemory> neighbours_memories() noexcept {
  return memory_table;
}

Pair::Pair(Session& session, const Arrangement& arrangement, MemorySource neighbours)
    : victim_(open(session, "victim", arrangement.victim)),
      neighbour_(arrangement.neighbour_takes_the_rest
                     ? open_in_the_rest(session, "neighbour",
                                        victim_->lease().granted.multiprocessors, neighbours)
                     : open(session, "neighbour", arrangement.neighbour, neighbours)) {}

}  // namespace ctxbroker::bench
