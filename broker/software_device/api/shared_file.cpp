// SPDX-License-Identifier: Apache-2.0
#include "api/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::uint64_t magic = 0x6d656d6278746301;
constexpr char file_name[] = "ctxbroker device";
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The ordinal in the file's name; negative for a file that no software device made.
CUdevice device_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char target[64] = {};
  if (readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  const std::string pattern = "/memfd:" + std::string(file_name) + " %d";
  CUdevice device = -1;
  return std::sscanf(target, pattern.c_str(), &device) == 1 ? device : -1;  // NOLINT(cert-err34-c)
}

}  // namespace

SharedFile::SharedFile(CUdevice device, std::size_t bytes) : device_(device), bytes_(bytes) {
  const std::string name = std::string(file_name) + " " + std::to_string(device);
  descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check_that(descriptor_ >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0 &&
      fcntl(descriptor_, F_ADD_SEALS, seals) == 0)
    return;
  close(descriptor_);
  fail(CUDA_ERROR_OUT_OF_MEMORY);
}

std::shared_ptr<SharedFile> SharedFile::without_name(CUdevice device, std::size_t bytes) {
  std::shared_ptr<SharedFile> made(new SharedFile);
  void* const pages =
      mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check_that(pages != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  made->pages_ = pages;
  made->device_ = device;
  made->bytes_ = bytes;
  return made;
}

SharedFile::~SharedFile() {
  if (pages_ != nullptr) munmap(pages_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

bool SharedFile::take(int descriptor) noexcept {
  descriptor_ = descriptor;
  if (descriptor < 0) return false;
  struct stat status = {};
  device_ = device_of(descriptor);
  if (device_ < 0 || fstat(descriptor, &status) != 0) return false;
  bytes_ = static_cast<std::size_t>(status.st_size);
  return (fcntl(descriptor, F_GET_SEALS) & seals) == seals;
}

std::shared_ptr<SharedFile> SharedFile::open(const Name& name) {
  check_that(name.magic == magic, CUDA_ERROR_INVALID_HANDLE);
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  std::shared_ptr<SharedFile> file(new SharedFile);
  check_that(file->take(::open(path.c_str(), O_RDWR | O_CLOEXEC)) && file->is_same_as(name),
             CUDA_ERROR_INVALID_HANDLE);
  return file;
}

std::shared_ptr<SharedFile> SharedFile::of_descriptor(int descriptor) {
  std::shared_ptr<SharedFile> file(new SharedFile);
  check_value(file->take(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)));
  return file;
}

SharedFile::Name SharedFile::name() const {
  struct stat status = {};
  check_that(fstat(descriptor_, &status) == 0, CUDA_ERROR_INVALID_HANDLE);
  return {magic, getpid(), descriptor_, status.st_dev, status.st_ino};
}

int SharedFile::duplicate() const {
  const int copy = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  check_that(copy >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  return copy;
}

bool SharedFile::is_same_as(const Name& name) const noexcept {
  struct stat status = {};
  return fstat(descriptor_, &status) == 0 && status.st_dev == name.device &&
         status.st_ino == name.number;
}

void* SharedFile::show(std::size_t bytes, int protection, void* address) const noexcept {
  if (pages_ != nullptr) {
    // With an old size of 0, mremap makes another mapping of the same pages.
    const int moves = address == nullptr ? MREMAP_MAYMOVE : MREMAP_MAYMOVE | MREMAP_FIXED;
    void* const shown = mremap(pages_, 0, bytes, moves, address);
    if (shown == MAP_FAILED) return nullptr;
    if (mprotect(shown, bytes, protection) == 0) return shown;
    munmap(shown, bytes);
    return nullptr;
  }
  const int flags = address == nullptr ? MAP_SHARED : MAP_SHARED | MAP_FIXED;
  void* const shown = mmap(address, bytes, protection, flags, descriptor_, 0);
  return shown == MAP_FAILED ? nullptr : shown;
}

}  // namespace ctxbroker::software
