// SPDX-License-Identifier: Apache-2.0
// The package that a library comes in, for a host whose users want each package to be a tenant.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Returns whether a library uses CUDA itself: it needs the driver or the runtime library, has
// device code in it, or names the driver's file, as a library does that opens the driver. Reads the
// file alone. `file` is the library's real path.
bool uses_cuda(const LoadedObject& library, const std::filesystem::path& file);

// Returns whether no package can have the library: it lies in one of the system's folders, or is
// NVIDIA's own, whose calls are its caller's.
bool is_in_no_package(const LoadedObject& library, const std::filesystem::path& file);

struct Package {
  std::string name;              // in letters, digits, '-', '_' and '.'
  std::filesystem::path folder;  // it lies there; others there have other names
  friend bool operator==(const Package&, const Package&) = default;
};

// Returns the package that the library is in. A package is a folder below site-packages, a plug-in
// in the folder `plugins` of such a package, or else a bundle (.bundle, .vst3), a folder with the
// library's own name, or the library with those that it needs from its folder. A package below
// site-packages whose libraries need CUDA code of another one is a part of that one. `present` is
// what is loaded.
Package package_of(const LoadedObject& library, const std::filesystem::path& file,
                   const std::vector<LoadedObject>& present);

}  // namespace ctxbroker::detail
