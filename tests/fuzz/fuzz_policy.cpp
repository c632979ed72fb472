// SPDX-License-Identifier: Apache-2.0
// Any bytes as a policy: a policy or an Error of kind policy.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ctxbroker/error.hpp"
#include "ctxbroker/policy.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    static_cast<void>(
        ctxbroker::parse_policy({reinterpret_cast<const char*>(data), size}, "fuzz.json"));
  } catch (const ctxbroker::Error& error) {
    if (error.kind() != ctxbroker::ErrorKind::policy || error.message().empty()) std::abort();
  }
  return 0;
}
