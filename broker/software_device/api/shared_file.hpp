// SPDX-License-Identifier: Apache-2.0
// Memory that several ranges and several processes can show: a file without a name.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class SharedFile {
 public:
  // A handle that another process of the same user opens while this one has the file. The file is
  // found through /proc, and compared with the device and the number of the file, which tell it
  // from what may have come in its place.
  struct Name {
    std::uint64_t magic = 0;
    pid_t process = 0;
    int descriptor = -1;
    dev_t device = 0;
    ino_t number = 0;

    bool operator==(const Name&) const = default;
  };

  // New memory of zeros; CUDA_ERROR_OUT_OF_MEMORY. Nobody can make it shorter, so whoever shows it
  // never reads beyond its end.
  SharedFile(CUdevice device, std::size_t bytes);
  // Makes memory that no other process opens. It is no file, so the limits for files do not
  // apply to it.
  static std::shared_ptr<SharedFile> without_name(CUdevice device, std::size_t bytes);
  // Of another process, or of this one; CUDA_ERROR_INVALID_HANDLE for a name of nothing.
  static std::shared_ptr<SharedFile> open(const Name& name);
  // What a descriptor stands for, which the caller keeps; CUDA_ERROR_INVALID_VALUE for what is no
  // memory of a software device.
  static std::shared_ptr<SharedFile> of_descriptor(int descriptor);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  Name name() const;
  int duplicate() const;  // a descriptor that is the caller's to close; CUDA_ERROR_OUT_OF_MEMORY
  bool is_same_as(const Name& name) const noexcept;

  // Shows its first bytes: at any address, or in the place of what is at `address`. Null where that
  // fails.
  void* show(std::size_t bytes, int protection, void* address = nullptr) const noexcept;

  CUdevice device() const noexcept { return device_; }  // ordinal of the device that it belongs to
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  SharedFile() = default;
  bool take(int descriptor) noexcept;  // false: not one of these files

  int descriptor_ = -1;
  void* pages_ = nullptr;  // without a descriptor: where the memory is, inaccessible
  CUdevice device_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace ctxbroker::software
