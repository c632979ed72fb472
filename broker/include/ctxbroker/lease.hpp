// A tenant's right to a context on one device, as the host sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

enum class LeaseKind {
  automatic,    // only asked for, never granted: green where it is to be had, else shared
  shared,       // the device's retained primary context
  private_own,  // a context made for this tenant alone; written "private"
  green,        // a green context: streams, and on request multiprocessors, of its own
  worker,       // a process of its own; only wished for: this version grants another in its place
};

CTXB_API const char* to_string(LeaseKind kind) noexcept;  // "auto", "shared", "private", ...
// The inverse, for what a host may ask for: not "worker".
CTXB_API std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept;

// What is asked for, or granted: a kind, and for a green lease how many multiprocessors (SMs).
struct LeaseChoice {
  LeaseKind kind = LeaseKind::automatic;
  // Green: at least so many, reserved for this tenant among the partitions; 0: all of the device,
  // reserved for nobody. Other kinds: 0 when asked for, the device's number when granted.
  unsigned multiprocessors = 0;

  LeaseChoice() = default;
  explicit LeaseChoice(LeaseKind its_kind) : kind(its_kind) {}
  LeaseChoice(LeaseKind its_kind, unsigned sms) : kind(its_kind), multiprocessors(sms) {}
  friend bool operator==(const LeaseChoice& a, const LeaseChoice& b) noexcept {
    return a.kind == b.kind && a.multiprocessors == b.multiprocessors;
  }
  friend bool operator!=(const LeaseChoice& a, const LeaseChoice& b) noexcept { return !(a == b); }
};

CTXB_API std::string to_string(const LeaseChoice& choice);  // "green:16"
// The inverse, for what a host may ask for: "auto", "shared", "private", "green", "green:16".
CTXB_API std::optional<LeaseChoice> parse_lease_choice(std::string_view text) noexcept;

enum class LeaseState {
  ready,
  lost,    // the context is gone, or was given up; a next use makes a new one where that can be
  ended,   // CUDA has ended in this process: no lease of it works again
  zombie,  // work on it does not end: it is used no more, and kept until the process ends, and so
           // is the tenant's memory on other devices
};

CTXB_API const char* to_string(LeaseState state) noexcept;

struct LeaseInfo {
  TenantId tenant;
  std::string tenant_name;
  int device = 0;
  LeaseChoice asked;    // by the host or its policy, for this user of it; automatic: left open
  LeaseChoice granted;  // the kind in force, with its number of multiprocessors
  std::string reason;   // why this kind was granted
  std::uint64_t generation = 0;  // which life of the context this is; unique in the process
  LeaseState state = LeaseState::ready;
  // Borrowed, for interoperation, never to be destroyed; good while this generation is in force.
  CUcontext context = nullptr;
};

}  // namespace ctxbroker
