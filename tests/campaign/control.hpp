// SPDX-License-Identifier: Apache-2.0
// The positive control: the same plug-ins with the same fault, all in one process, each in a green
// lease of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "faults.hpp"

namespace ctxbroker::campaign {

struct ControlResult {
  bool ran = false;  // all plug-ins gave right frames before the fault
  Damage damage = Damage::none;
  std::string text;  // what became of the process, in words
};

// In a child process. `libraries` are one file for each plug-in.
ControlResult run_control(const Fault& fault, const std::vector<std::filesystem::path>& libraries,
                          int guilty);
// Whether that is as much damage as the fault is to do.
bool is_expected(const Fault& fault, const ControlResult& result);

// The child. Returns only if the process is still there.
int be_control(const Fault& fault, const std::vector<std::filesystem::path>& libraries, int guilty);

// Free memory of the first device, asked in a child with a context of its own.
struct DeviceMemory {
  std::uint64_t free_bytes = 0;
  bool is_shared = false;  // by all processes. The software device has some for each
};
DeviceMemory device_memory();
int print_device_memory();

}  // namespace ctxbroker::campaign
