// SPDX-License-Identifier: Apache-2.0
#include "worker/packet.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ctxbroker::detail {
namespace {

// Room for the one descriptor of a packet.
struct alignas(cmsghdr) DescriptorRoom {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

}  // namespace

bool send_packet(int socket, const PacketHead& head, const void* data, int descriptor) noexcept {
  PacketHead copy = head;
  std::array<iovec, 2> parts{{{&copy, sizeof copy}, {const_cast<void*>(data), head.bytes}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = head.bytes != 0 ? 2 : 1;
  DescriptorRoom room;
  if (descriptor >= 0) {
    message.msg_control = room.bytes.data();
    message.msg_controllen = room.bytes.size();
    cmsghdr* const control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool read_head(const std::byte* bytes, std::size_t count, PacketHead& head) noexcept {
  if (count < sizeof head || count > most_packet_bytes) return false;
  std::memcpy(&head, bytes, sizeof head);
  return head.magic == packet_magic && head.bytes == count - sizeof head;
}

bool read_hello(const std::byte* body, std::size_t count, Hello& hello) noexcept {
  if (count < sizeof hello) return false;
  std::memcpy(&hello, body, sizeof hello);
  return hello.shape.cells >= 1 && hello.shape.cells <= most_cells &&
         hello.shape.message_bytes >= 64 && hello.shape.message_bytes <= most_message_bytes &&
         hello.shape.message_bytes % 64 == 0 && hello.threads >= 1 && hello.threads <= most_threads;
}

// The packet is looked at, and then taken. Descriptors for which there is no room end when it is
// taken, and this thread would have to wait for that. So it is taken only when its descriptor is
// here.
Received receive_packet(int socket, Packet& packet) noexcept {
  packet.descriptor.close();
  iovec part{packet.bytes.data(), packet.bytes.size()};
  DescriptorRoom room;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // a second one would fit into the padding
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? Received::nothing : Received::ended;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
    packet.descriptor = Descriptor(descriptor);
  }
  if (got == 0) return Received::ended;
  if ((message.msg_flags & MSG_CTRUNC) != 0) return Received::bad;
  static_cast<void>(::recv(socket, nullptr, 0, MSG_DONTWAIT));
  const bool whole = (message.msg_flags & MSG_TRUNC) == 0;
  return whole && read_head(packet.bytes.data(), static_cast<std::size_t>(got), packet.head)
             ? Received::packet
             : Received::bad;
}

}  // namespace ctxbroker::detail
