// SPDX-License-Identifier: Apache-2.0
// What the environment says about the software device; read once, by cuInit.
#pragma once

#include <cstddef>
#include <string>

namespace ctxbroker::software {

struct Settings {
  unsigned devices = 1;          // CTXBROKER_SOFTWARE_DEVICES, 0 to 16
  unsigned threads = 1;          // CTXBROKER_SOFTWARE_THREADS: per device, at least 1
  std::size_t memory = 0;        // CTXBROKER_SOFTWARE_MEMORY: bytes per device
  std::string name;              // CTXBROKER_SOFTWARE_NAME
  int compute = 0;               // CTXBROKER_SOFTWARE_COMPUTE: 75 is 7.5
  unsigned multiprocessors = 0;  // CTXBROKER_SOFTWARE_MULTIPROCESSORS: per device
  bool mps = false;  // CTXBROKER_SOFTWARE_MPS names the folder where CUDA looks for an MPS server
};

// A value that cannot be is an error of the environment: it is reported on the driver's log, and
// the default is used.
Settings read_settings();

}  // namespace ctxbroker::software
