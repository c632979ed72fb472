// SPDX-License-Identifier: Apache-2.0
#include "support/session.hpp"

#include <stdexcept>

namespace ctxbroker::bench {
namespace {

TenantOptions asking_for(LeaseKind kind) {
  TenantOptions options;
  options.lease = LeaseChoice(kind);
  return options;
}

BrokerOptions for_program(BrokerOptions options, const std::string& program) {
  options.host_name = program;
  options.host = asking_for(LeaseKind::shared);
  return options;
}

}  // namespace

std::filesystem::path sample_plugin(const std::string& name) {
  const std::filesystem::path program = std::filesystem::canonical("/proc/self/exe");
  return program.parent_path().parent_path() / "plugins" / (name + ".so");
}

Session::Session(const std::string& program, bool quick, const BrokerOptions& options)
    : broker_(Broker::open(for_program(options, program))),
      raw_(broker_.driver().path),
      quick_(quick),
      host_(broker_.host()) {
  host_.lease();  // the device is in use from here on; no later figure pays for that
}

const CheckedDriver& Session::gated() {
  if (!broker_.gate().in_force) {
    throw std::runtime_error("the gate is not in force: " + broker_.gate().reason);
  }
  if (!gated_) gated_.emplace("libcuda.so.1");
  return *gated_;
}

std::uint64_t Session::kept_by(const Tenant& tenant) const {
  for (const TenantMetrics& one : broker_.metrics().tenants) {
    if (one.id == tenant.id()) return one.store_unused_bytes;
  }
  throw std::runtime_error("the metrics do not have the tenant");
}

Tenant& Session::tenant(LeaseKind kind, unsigned index) {
  auto& place = tenants_[{kind, index}];
  if (place == nullptr) {
    place = std::make_unique<Tenant>(broker_.open_tenant(
        std::string(to_string(kind)) + " " + std::to_string(index), asking_for(kind)));
    place->lease();
  }
  return *place;
}

}  // namespace ctxbroker::bench
