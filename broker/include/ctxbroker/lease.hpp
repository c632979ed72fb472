// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lease: a tenant's right to a context on one device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

/// What kind of context a lease gives.
enum class LeaseKind {
  /// Never granted. It leaves the choice to the policy, then to the plug-ins. If neither asks for a
  /// kind, the lease is green where the driver offers it, else shared. While work hangs in the
  /// device's primary context, it is private, because the others would wait for that work.
  automatic,
  shared,       ///< The device's retained primary context, which other leases share.
  private_own,  ///< A context of the tenant's own. Its name in text is "private".
  green,        ///< A green context: its own streams and, on request, its own multiprocessors.
  /// Never granted. It asks for another process than the host's, which a WorkerGraph can give (see
  /// WorkerGrouping). Within a process, it counts as `automatic`, and the reason says so.
  worker,
};

/// Returns "auto", "shared", "private", "green" or "worker". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(LeaseKind kind) noexcept;

/// Reads a kind that a host may ask for.
///
/// @param text  "auto", "shared", "private" or "green".
/// @return the kind, or nothing for any other text ("worker" too). Thread-safe.
[[nodiscard]] CTXB_API std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept;

/// The lease that a tenant asks for, or the one that it got: a kind and, for a green lease, a
/// number of multiprocessors (SMs).
struct LeaseChoice {
  LeaseKind kind = LeaseKind::automatic;
  /// Asked for: a green lease gets at least this many multiprocessors, which no other green lease
  /// of this broker uses; 0 asks for all of the device and reserves none. Other kinds ignore it.
  /// Granted: how many multiprocessors the lease's work can use.
  unsigned multiprocessors = 0;

  /// Leaves the choice open: automatic.
  LeaseChoice() = default;
  /// Asks for a kind, without multiprocessors of its own.
  explicit LeaseChoice(LeaseKind its_kind) : kind(its_kind) {}
  /// Asks for a kind with at least `sms` multiprocessors of its own.
  LeaseChoice(LeaseKind its_kind, unsigned sms) : kind(its_kind), multiprocessors(sms) {}

  friend bool operator==(const LeaseChoice& a, const LeaseChoice& b) noexcept {
    return a.kind == b.kind && a.multiprocessors == b.multiprocessors;
  }
  friend bool operator!=(const LeaseChoice& a, const LeaseChoice& b) noexcept { return !(a == b); }
};

/// Returns the kind's name and, for a green lease, the number of multiprocessors, if it is not 0:
/// "green:16". A granted lease without a partition has the whole device's number. Thread-safe.
[[nodiscard]] CTXB_API std::string to_string(const LeaseChoice& choice);

/// Reads a lease that a host may ask for.
///
/// @param text  "auto", "shared", "private", "green" or "green:16".
/// @return the choice, or nothing for any other text. Thread-safe.
[[nodiscard]] CTXB_API std::optional<LeaseChoice> parse_lease_choice(
    std::string_view text) noexcept;

/// Whether a lease can be used.
enum class LeaseState {
  ready,  ///< It can be used.
  lost,   ///< Its context is gone. The next use creates a new one, of the next generation.
  ended,  ///< CUDA has ended in this process. No lease of the process works again.
  /// Its work on the device did not finish within its timeout. The lease takes no new work. What
  /// cannot be freed while that work runs is freed when it ends; BrokerMetrics::put_off lists it.
  hung,
};

/// Returns the state's name: "ready", "lost", ... Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(LeaseState state) noexcept;

/// A lease as it was at one moment.
struct LeaseInfo {
  TenantId tenant;          ///< Whose lease it is.
  std::string tenant_name;  ///< The plug-in library's name, the opened tenant's name, or "host".
  int device = 0;           ///< CUDA device ordinal.
  LeaseChoice asked;        ///< What the host or its policy asked for; automatic if neither did.
  LeaseChoice granted;      ///< The kind in force, with the multiprocessors that it can use.
  std::string reason;       ///< Why this kind was granted.
  /// Counts the contexts that the process's leases have had. A number is never used twice, and a
  /// later context has a larger one. Handles of an older generation are dead.
  std::uint64_t generation = 0;
  LeaseState state = LeaseState::ready;
  /// The lease's context, for other libraries. It belongs to the broker, so never destroy it. It is
  /// valid while this generation is in force.
  CUcontext context = nullptr;
};

}  // namespace ctxbroker
