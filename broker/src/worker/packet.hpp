// SPDX-License-Identifier: Apache-2.0
// Packets on the socket between host and worker, and memory that both map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "process/child.hpp"
#include "worker/layout.hpp"

namespace ctxbroker::detail {

// Never waits. False when the packet was not sent; errno says why.
bool send_packet(int socket, const PacketHead& head, const void* data,
                 int descriptor = -1) noexcept;

enum class Received { packet, nothing, ended, bad };

struct Packet {
  Packet() : bytes(most_packet_bytes + 1) {}
  PacketHead head;
  const std::byte* body() const noexcept { return bytes.data() + sizeof(PacketHead); }
  Descriptor descriptor;
  std::vector<std::byte> bytes;
};

// Never waits. A packet that is not whole, or not one of ours, is bad. What is not a packet can
// bring a descriptor too, and may still be in the socket: read it no more.
Received receive_packet(int socket, Packet& packet) noexcept;

// Whether the bytes are one whole packet; `head` gets a copy of its head.
bool read_head(const std::byte* bytes, std::size_t count, PacketHead& head) noexcept;
// The hello in a packet's body, and where the module's path begins; false when it is impossible.
bool read_hello(const std::byte* body, std::size_t count, Hello& hello) noexcept;

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
  std::byte* get() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ctxbroker::detail
