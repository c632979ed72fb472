// SPDX-License-Identifier: Apache-2.0
// Pages of host memory that CUDA and other processes may know.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "process/memory_file.hpp"

namespace ctxbroker::detail {

// Any thread. Shared by all that use the memory: the host's object, the jobs in flight, and the
// registration.
class HostPages {
 public:
  // Makes pages that are filled with zeros. Other processes can map them. Throws Error:
  // invalid_argument for 0 bytes, out_of_host_memory, system_limit.
  static std::shared_ptr<HostPages> make(std::size_t bytes);
  // Pages of the host, which keeps them for longer.
  HostPages(void* begin, std::size_t bytes) noexcept
      : begin_(static_cast<std::byte*>(begin)), bytes_(bytes) {}
  HostPages(Descriptor file, Mapping mapping) noexcept
      : file_(std::move(file)),
        mapping_(std::move(mapping)),
        begin_(mapping_.get()),
        bytes_(mapping_.bytes()) {}
  // If CUDA still knows the addresses, nothing else gets them.
  ~HostPages() {
    if (mapping_.get() != nullptr && is_known()) mapping_.leave_addresses();
  }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  std::byte* begin() const noexcept { return begin_; }
  const std::byte* end() const noexcept { return begin_ + bytes_; }
  std::size_t bytes() const noexcept { return bytes_; }
  int descriptor() const noexcept { return file_.get(); }  // -1 for pages of the host
  bool are_hosts() const noexcept { return mapping_.get() == nullptr; }

  bool holds(const void* address) const noexcept {
    const std::less<const std::byte*> before;  // of any two addresses
    const auto* const at = static_cast<const std::byte*>(address);
    return !before(at, begin()) && before(at, end());
  }

  // CUDA knows them from a registration on, until it has confirmed the end of that.
  void set_known(bool known) noexcept { is_known_.store(known, std::memory_order_release); }
  bool is_known() const noexcept { return is_known_.load(std::memory_order_acquire); }

 private:
  Descriptor file_;
  Mapping mapping_;  // none for pages of the host
  std::byte* begin_;
  std::size_t bytes_;
  std::atomic<bool> is_known_{false};
};

}  // namespace ctxbroker::detail
