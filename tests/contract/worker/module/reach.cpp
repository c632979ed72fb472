// SPDX-License-Identifier: Apache-2.0
// What a plug-in that means harm would try on the network and on the process of its host.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include "acts.hpp"

namespace ctxbroker::test {
namespace {

int error_of(long result) {
  return result < 0 ? errno : 0;
}

int error_of_descriptor(long descriptor) {
  const int error = error_of(descriptor);
  if (descriptor >= 0) close(static_cast<int>(descriptor));
  return error;
}

// Runs it in a child, whose end undoes it.
int in_child(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) _exit(act());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return ECHILD;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

int connect_to(std::uint64_t port) {
  const int end = socket(AF_INET, SOCK_STREAM, 0);
  if (end < 0) return errno;
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int error = error_of(connect(end, reinterpret_cast<sockaddr*>(&where), sizeof where));
  close(end);
  return error;
}

// A program cannot say why it failed.
int connect_by_program(std::uint64_t port) {
  const std::string command = "exec 2>&- 3<>/dev/tcp/127.0.0.1/" + std::to_string(port);
  const int failed =
      in_child([&] { return execl("/bin/bash", "bash", "-c", command.c_str(), nullptr); });
  return failed == 0 ? 0 : EACCES;
}

int make_32_bit_socket() {
#if defined(__x86_64__)
  return in_child([] {
    long result = 359;  // socket, among the calls of 32-bit programs
    asm volatile("int $0x80"
                 : "+a"(result)
                 : "b"(AF_INET), "c"(SOCK_STREAM), "d"(0)
                 : "memory", "r8", "r9", "r10", "r11");
    return result < 0 ? static_cast<int>(-result) : 0;
  });
#else
  return ENOSYS;
#endif
}

int make_io_uring() {
  alignas(8) std::array<char, 120> parameters{};  // struct io_uring_params
  return error_of_descriptor(syscall(SYS_io_uring_setup, 4, parameters.data()));
}

int reach_memory(const Attempt& attempt, bool write) {
  std::uint64_t value = 666;
  const iovec here{&value, sizeof value};
  const iovec there{reinterpret_cast<void*>(attempt.address), sizeof value};
  const auto process = static_cast<pid_t>(attempt.process);
  return error_of(write ? process_vm_writev(process, &here, 1, &there, 1, 0)
                        : process_vm_readv(process, &here, 1, &there, 1, 0));
}

int write_memory_file(const Attempt& attempt) {
  const std::string file = "/proc/" + std::to_string(attempt.process) + "/mem";
  const int memory = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (memory < 0) return errno;
  const std::uint64_t value = 667;
  const int error =
      error_of(pwrite(memory, &value, sizeof value, static_cast<off_t>(attempt.address)));
  close(memory);
  return error;
}

int take_descriptor(pid_t process) {
  const long handle = syscall(SYS_pidfd_open, process, 0);
  const int error = error_of_descriptor(syscall(SYS_pidfd_getfd, handle, 0, 0));
  close(static_cast<int>(handle));
  return error;
}

int set_limit(pid_t process) {
  rlimit now{};
  getrlimit(RLIMIT_CORE, &now);  // a worker's is 0
  return error_of(prlimit(process, RLIMIT_CORE, &now, nullptr));
}

int end_own_child() {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const int error = error_of(kill(child, SIGKILL));
  waitpid(child, nullptr, 0);
  return error;
}

}  // namespace

int reach(const Attempt& attempt) {
  const auto process = static_cast<pid_t>(attempt.process);
  constexpr int harmless = SIGURG;  // it is ignored by default
  std::array<int, 2> pair{};
  std::array<char, 100> text{};
  switch (attempt.way) {
    case Way::tcp_connection:
      return connect_to(attempt.port);
    case Way::tcp_connection_child:
      return connect_by_program(attempt.port);
    case Way::ipv6_socket:
      return error_of_descriptor(socket(AF_INET6, SOCK_DGRAM, 0));
    case Way::netlink_socket:
      return error_of_descriptor(socket(AF_NETLINK, SOCK_RAW, 0));
    case Way::packet_socket:
      return error_of_descriptor(socket(AF_PACKET, SOCK_RAW, 0));
    case Way::vsock_socket:
      return error_of_descriptor(socket(AF_VSOCK, SOCK_STREAM, 0));
    case Way::ipv4_pair:
      return error_of(socketpair(AF_INET, SOCK_STREAM, 0, pair.data()));
    case Way::socket_32_bit:
      return make_32_bit_socket();
    case Way::io_uring:
      return make_io_uring();
    case Way::unix_socket:
      return error_of_descriptor(socket(AF_UNIX, SOCK_STREAM, 0));
    case Way::memory_write:
      return reach_memory(attempt, true);
    case Way::memory_read:
      return reach_memory(attempt, false);
    case Way::memory_file:
      return write_memory_file(attempt);
    case Way::descriptor_link:
      return error_of(readlink(("/proc/" + std::to_string(process) + "/fd/2").c_str(), text.data(),
                               text.size()));
    case Way::trace:
      return in_child([&] { return error_of(ptrace(PTRACE_SEIZE, process, nullptr, nullptr)); });
    case Way::descriptor:
      return take_descriptor(process);
    case Way::limit:
      return set_limit(process);
    case Way::signal:
      return error_of(kill(process, harmless));
    case Way::signal_child:
      return in_child([&] { return error_of(kill(process, harmless)); });
    case Way::own_child:
      return end_own_child();
  }
  return EINVAL;
}

}  // namespace ctxbroker::test
