// The files that drivers are loaded from. The operating system's part of this room.
#pragma once

#include <filesystem>
#include <string>

namespace ctxbroker::detail {

struct LoadedFile {
  void* handle = nullptr;  // never closed
  std::string path;        // the file, as the loader resolved it
  std::string error;       // the loader's own words when handle is null
};

// Name by which the loader finds NVIDIA's driver.
const char* nvidia_driver_name() noexcept;

// `name` is a path, or a bare name for the loader's search path.
LoadedFile load_driver_file(const std::filesystem::path& name);

// The same by another way than the loader's: through the gate, which then stands before it.
using DriverLoader = LoadedFile (*)(const std::filesystem::path& name);

// The file of a loaded library; `asked` where the loader does not say.
std::string loaded_path(void* library, const std::filesystem::path& asked);

// The library's own, whoever stands in front of the loader.
void* find_symbol(void* library, const char* symbol) noexcept;

// A file of this project's: beside the file this code is in, or in ../lib of it. The first that
// exists; otherwise the first of the two.
std::filesystem::path beside_this_library(const char* name);

std::filesystem::path default_software_device();

}  // namespace ctxbroker::detail
