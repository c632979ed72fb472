// SPDX-License-Identifier: Apache-2.0
// Makes the one image that the driver loads from an image, a file, parts, or CUDA C++.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "context/lease.hpp"
#include "module/module_image.hpp"
#include "module/stored_image.hpp"

namespace ctxbroker::detail {

// Returns the compute capability of the lease's device: 10 * major + minor.
int capability_of(const Lease& lease);

// Tells whether a file has changed without reading it.
struct FileStamp {
  bool there = false;
  std::int64_t changed = 0;  // ns
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  // of its inode

  bool operator==(const FileStamp&) const = default;
};
FileStamp stamp_of(const std::filesystem::path& file) noexcept;

// One per module of a plug-in library. It compiles or links only once for devices of the same
// compute capability. Any thread may use it.
class ImageMaker {
 public:
  // Returns the image for the lease's device, and makes it again when the module's file has
  // changed. The lease's context must be current. Throws Error: kernel_image, with the compiler's
  // or linker's log; driver_call.
  std::shared_ptr<const StoredImage> make(Lease& lease, const ModuleImage& module);

 private:
  struct Made {
    FileStamp stamp = {};
    std::shared_ptr<const StoredImage> image = {};
  };
  std::mutex mutex_;
  std::map<int, Made> made_;  // by compute capability
};

}  // namespace ctxbroker::detail
