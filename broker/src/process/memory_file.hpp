// SPDX-License-Identifier: Apache-2.0
// Memory that several processes can map, behind a descriptor.
#pragma once

#include <cstddef>
#include <utility>

#include "process/child.hpp"

namespace ctxbroker::detail {

// Memory of a fixed size, behind a descriptor. Throws std::system_error.
Descriptor sealed_memory(const char* name, std::size_t bytes);

// A mapping of such memory, for reading and writing.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int descriptor, std::size_t bytes);  // throws std::system_error
  // Addresses that nothing else in this process has. There is no memory behind them.
  static Mapping only_addresses(std::size_t bytes);  // throws std::system_error
  Mapping(Mapping&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    Mapping taken(std::move(other));  // what this one had is unmapped at the end
    std::swap(memory_, taken.memory_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ~Mapping();
  // Takes the memory away and keeps the addresses, so that nothing else gets them. Then this has
  // nothing.
  void leave_addresses() noexcept;
  std::byte* get() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ctxbroker::detail
