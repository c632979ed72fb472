// SPDX-License-Identifier: Apache-2.0
// Packets on the socket between host and worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "process/child.hpp"
#include "process/memory_file.hpp"
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

}  // namespace ctxbroker::detail
