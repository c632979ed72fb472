// SPDX-License-Identifier: Apache-2.0
#include "process/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ctxbroker::detail {

Descriptor sealed_memory(const char* name, std::size_t bytes) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make shared memory");
  }
  return memory;
}

Mapping::Mapping(int descriptor, std::size_t bytes) : bytes_(bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot map shared memory");
  }
  memory_ = static_cast<std::byte*>(memory);
}

Mapping Mapping::only_addresses(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot reserve addresses");
  }
  Mapping mapping;
  mapping.memory_ = static_cast<std::byte*>(memory);
  mapping.bytes_ = bytes;
  return mapping;
}

void Mapping::leave_addresses() noexcept {
  ::mmap(memory_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
  memory_ = nullptr;
  bytes_ = 0;
}

Mapping::~Mapping() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

}  // namespace ctxbroker::detail
