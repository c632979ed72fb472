// SPDX-License-Identifier: Apache-2.0
#include "resources.hpp"

#include <unistd.h>

#include <fstream>

#include "support/driver_by_name.hpp"
#include "support/process_state.hpp"

namespace ctxbroker::soak {

Resources resources() {
  std::size_t free = 0, total = 0;
  driver_call("cuMemGetInfo_v2", &free, &total);
  const ProcessState state = process_state();
  std::uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {free, state.threads, state.descriptors,
          resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))};
}

}  // namespace ctxbroker::soak
