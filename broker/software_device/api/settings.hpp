// What the environment says about the software device; read once, by cuInit.
#pragma once

#include <cstddef>

namespace ctxbroker::software {

struct Settings {
  unsigned devices = 1;    // CTXBROKER_SOFTWARE_DEVICES, 0 to 16
  unsigned threads = 1;    // CTXBROKER_SOFTWARE_THREADS: per device, at least 1
  std::size_t memory = 0;  // CTXBROKER_SOFTWARE_MEMORY: bytes per device
};

// A value that is not a number, or out of range, is an error of the environment: it is reported on
// the driver's log and the default stands.
Settings read_settings();

}  // namespace ctxbroker::software
