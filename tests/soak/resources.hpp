// SPDX-License-Identifier: Apache-2.0
// What the process and the device have left.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxbroker::soak {

struct Resources {
  std::uint64_t device_bytes_free = 0;
  std::size_t threads = 0, descriptors = 0;
  std::uint64_t resident_bytes = 0;
};

// With a context current.
Resources resources();

}  // namespace ctxbroker::soak
