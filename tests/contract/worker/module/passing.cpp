// SPDX-License-Identifier: Apache-2.0
#include "passing.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "acts.hpp"
#include "worker/layout.hpp"

namespace ctxbroker::test {

void send_descriptors(const int* all, std::size_t count) {
  detail::PacketHead head;
  head.kind = detail::PacketKind::descriptor;
  head.number = 5;
  iovec part{&head, sizeof head};
  std::vector<cmsghdr> room(CMSG_SPACE(count * sizeof(int)) / sizeof(cmsghdr) + 1);
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(control), all, count * sizeof(int));
  static_cast<void>(!sendmsg(detail::worker_socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int made_memory() {
  const int file = memfd_create("given", MFD_CLOEXEC);
  return ftruncate(file, 4096) == 0 ? file : -1;
}

namespace {

// Whose end has to wait until the other side has read all, which it never does.
int lingering_socket(std::uint64_t port) {
  const int end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (connect(end, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  const std::vector<char> data(std::size_t{1} << 16);
  while (::send(end, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const linger long_time{1, 20};
  setsockopt(end, SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time);
  return end;
}

// They are in the packets alone afterwards.
void pass_sockets(std::uint64_t port, std::uint64_t packets, std::uint64_t in_each) {
  std::vector<int> all;
  for (std::uint64_t i = 0; i < packets * in_each; ++i) all.push_back(lingering_socket(port));
  for (std::uint64_t i = 0; i < packets; ++i) send_descriptors(&all[i * in_each], in_each);
  for (const int one : all) close(one);
}

}  // namespace

bool pass(const ctxb_worker_host& host, const ctxb_worker_message& message) {
  const auto give_away = [&](int descriptor) {
    if (host.pass_descriptor(5, descriptor) != CTXB_ERROR_INVALID_ARGUMENT) std::abort();
    send_descriptors(&descriptor, 1);
    close(descriptor);
  };
  switch (message.type) {
    case passes_sockets: {
      std::array<std::uint64_t, 3> asked{};
      std::memcpy(asked.data(), message.data, sizeof asked);
      pass_sockets(asked[0], asked[1], asked[2]);
      break;
    }
    case passes_pipe: {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) == 0) give_away(ends[0]);
      break;
    }
    case passes_file:
      give_away(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
      break;
    case passes_folder:
      give_away(open("/", O_RDONLY | O_CLOEXEC));
      break;
    case passes_many: {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      while (std::chrono::steady_clock::now() < end) {
        const int memory = made_memory();
        static_cast<void>(host.pass_descriptor(5, memory));
        close(memory);
      }
      return true;
    }
    default:
      return false;
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return true;
}

}  // namespace ctxbroker::test
