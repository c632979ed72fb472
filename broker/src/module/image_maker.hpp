// From what a module is made of (an image, a file, parts, CUDA C++) to the one image that the
// driver loads.
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

// What tells one state of a file from another without reading it.
struct FileStamp {
  bool there = false;
  std::int64_t changed = 0;  // ns
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  // of its inode

  bool operator==(const FileStamp&) const = default;
};
FileStamp stamp_of(const std::filesystem::path& file) noexcept;

// One per module of a plug-in library: what was compiled or linked is not compiled or linked again
// for the same kind of device. Any thread.
class ImageMaker {
 public:
  // The image for the lease's device, whose context is current. Anew when `file` has changed.
  // Throws Error: kernel_image, with the compiler's or linker's log; driver_call.
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
