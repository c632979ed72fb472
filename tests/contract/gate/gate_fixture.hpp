// SPDX-License-Identifier: Apache-2.0
// A broker for tests of the gate, and what its metrics say.
#pragma once

#include <cstdint>
#include <string>

#include "ctxbroker/broker.hpp"
#include "recording_broker.hpp"
#include "store_support.hpp"

namespace ctxbroker {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool threads_start_in_their_code = false;  // but in the sanitizer's
#else
inline constexpr bool threads_start_in_their_code = true;
#endif

class GateTest : public RecordingBrokerTest {
 protected:
  std::uint64_t held_bytes(const std::string& tenant) {
    for (const TenantMetrics& metrics : broker.metrics().tenants)
      if (metrics.name == tenant) return metrics.held_bytes;
    return 0;
  }
  // Memory of a pool counts until the device has come to an event behind the work that may use it.
  bool comes_to_hold(const std::string& tenant, std::uint64_t bytes) {
    return comes_true([&] { return held_bytes(tenant) == bytes; });
  }
  std::uint64_t held(const std::string& tenant, const char* kind) {
    for (const TenantMetrics& metrics : broker.metrics().tenants)
      if (const auto found = metrics.held.find(kind);
          metrics.name == tenant && found != metrics.held.end())
        return found->second.count;
    return 0;
  }
  template <typename Function>
  static Function* symbol(const AdoptedLibrary& library, const char* name) {
    return reinterpret_cast<Function*>(library.symbol(name));
  }
};

}  // namespace ctxbroker
