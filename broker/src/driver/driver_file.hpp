// SPDX-License-Identifier: Apache-2.0
// Finds and loads the files of drivers. The only part of this room that depends on the operating
// system.
#pragma once

#include <filesystem>
#include <string>

namespace ctxbroker::detail {

struct LoadedFile {
  void* handle = nullptr;  // stays open until the process ends
  std::string path;        // the file, as the loader resolved it
  std::string error;       // the loader's message when handle is null
};

// Returns the name by which the loader finds NVIDIA's driver.
const char* nvidia_driver_name() noexcept;

// Loads a library. `name` is a path, or a file name that the loader looks for in its search path.
LoadedFile load_driver_file(const std::filesystem::path& name);

// A replacement for load_driver_file. The gate provides one that puts the gate before the driver.
using DriverLoader = LoadedFile (*)(const std::filesystem::path& name);

// Returns the file of a loaded library, or `asked` when the loader does not know it.
std::string loaded_path(void* library, const std::filesystem::path& asked);

// Returns the symbol that the library itself exports, even when a tool has replaced dlsym. Null
// when there is none.
void* find_symbol(void* library, const char* symbol) noexcept;

// Returns the file of the software device that comes with this library.
std::filesystem::path default_software_device();

}  // namespace ctxbroker::detail
