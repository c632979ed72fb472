// SPDX-License-Identifier: Apache-2.0
// A program that opens a broker itself, and does not know that it runs under ctxb-run. It opens the
// libraries that it is given, and lets each allocate.
#include <dlfcn.h>

#include <cstdio>
#include <exception>

#include "ctxbroker/broker.hpp"

int main(int argc, char** argv) try {
  ctxbroker::BrokerOptions options;
  options.policy.libraries.push_back({"*_twin.so", "its_own"});
  options.policy.by_id["its_own"].lease = ctxbroker::LeaseChoice(ctxbroker::LeaseKind::shared);
  const ctxbroker::Broker broker = ctxbroker::Broker::open(std::move(options));
  for (int i = 1; i < argc; ++i) {
    void* const library = dlopen(argv[i], RTLD_NOW);
    auto* const allocate = reinterpret_cast<int (*)()>(dlsym(library, "allocate"));
    std::printf("allocate: %d\n", allocate());
  }
  for (const auto& library : broker.metrics().libraries) {
    std::printf("%s: %s\n", library.tenant_name.c_str(), library.pattern.c_str());
  }
  for (const auto& lease : broker.leases()) {
    std::printf("%s has %s\n", lease.tenant_name.c_str(), ctxbroker::to_string(lease.granted.kind));
  }
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
