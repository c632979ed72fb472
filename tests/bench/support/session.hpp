// SPDX-License-Identifier: Apache-2.0
// What every benchmark program stands on: an open broker, the raw driver beside it, and tenants by
// lease kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "support/checked_driver.hpp"

namespace ctxbroker::bench {

// The library of a sample plug-in: "gain".
std::filesystem::path sample_plugin(const std::string& name);

class Session {
 public:
  // The driver that CTXBROKER_DRIVER names, else what the broker finds. Throws ctxbroker::Error.
  explicit Session(const std::string& program, bool quick, const BrokerOptions& options = {});

  Broker& broker() noexcept { return broker_; }
  const CheckedDriver& raw() const noexcept { return raw_; }
  // The driver's functions as code finds them by name: with the gate in front. Throws
  // std::runtime_error if the gate is not in force.
  const CheckedDriver& gated();
  const DeviceInfo& device() const { return broker_.devices().front(); }
  // The device memory that the tenant's pools keep unused, in bytes.
  std::uint64_t kept_by(const Tenant& tenant) const;
  // Only so much work as shows that the program works; the figures say nothing then.
  bool quick() const noexcept { return quick_; }
  unsigned rounds(unsigned usual) const noexcept { return quick_ ? 2 : usual; }

  // The same tenant for the same kind and index, until clear.
  Tenant& tenant(LeaseKind kind, unsigned index);
  void clear() { tenants_.clear(); }
  // The host, in the primary context.
  Tenant& host() noexcept { return host_; }

 private:
  Broker broker_;
  CheckedDriver raw_;
  std::optional<CheckedDriver> gated_;
  bool quick_;
  Tenant host_;
  std::map<std::pair<LeaseKind, unsigned>, std::unique_ptr<Tenant>> tenants_;
};

// The kinds that a comparison goes through.
inline constexpr LeaseKind lease_kinds[] = {LeaseKind::shared, LeaseKind::private_own,
                                            LeaseKind::green};

}  // namespace ctxbroker::bench
