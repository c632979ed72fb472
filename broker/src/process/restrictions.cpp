// SPDX-License-Identifier: Apache-2.0
#include "process/restrictions.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "process/child.hpp"

namespace ctxbroker::detail {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#else
#error "add this processor's number from linux/audit.h"
#endif

// They have the same numbers on all processors. Older headers lack them.
constexpr long io_uring_setup = 425, landlock_create_ruleset = 444, landlock_restrict_self = 446;

// A classic BPF program that decides on each system call.
class Filter {
 public:
  // Refuses calls in the way of another architecture, because their numbers mean something else.
  Filter() {
    load(offsetof(seccomp_data, arch));
    jump(BPF_JEQ, own_architecture, 1, 0);
    fail(ENOSYS);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    constexpr std::uint32_t first_of_x32 = 0x40000000;
    jump(BPF_JGE, first_of_x32, 0, 1);
    fail(ENOSYS);
#endif
  }

  void refuse(long call, int error) {
    jump(BPF_JEQ, static_cast<std::uint32_t>(call), 0, 1);
    fail(error);
  }

  // Refuses the call, unless its first argument, an int, is this one.
  void refuse_unless(long call, std::uint32_t first_argument, int error) {
    jump(BPF_JEQ, static_cast<std::uint32_t>(call), 0, 4);
    load(offsetof(seccomp_data, args));  // the lower half: both processors are little-endian
    jump(BPF_JEQ, first_argument, 1, 0);
    fail(error);
    answer(SECCOMP_RET_ALLOW);
  }

  // Allows all other calls. The filter holds for all threads and for children, and cannot be taken
  // off. No program that they start gets more rights than they have.
  void set(const char* purpose) {
    answer(SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    // Against side channels, a filter is of no use, and their defence makes all code slower.
    constexpr unsigned flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0) {
      throw std::system_error(errno, std::generic_category(), purpose);
    }
  }

 private:
  void add(std::uint32_t code, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    code_.push_back({static_cast<std::uint16_t>(code), yes, no, value});
  }
  void load(std::size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0);
  }
  void jump(std::uint32_t test, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    add(BPF_JMP | BPF_K | test, value, yes, no);
  }
  void answer(std::uint32_t value) {
    add(BPF_RET | BPF_K, value, 0, 0);
  }
  void fail(int error) {
    answer(SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
  }

  std::vector<sock_filter> code_;
};

}  // namespace

void give_up_network() {
  Filter filter;
  filter.refuse_unless(SYS_socket, AF_UNIX, EACCES);
  filter.refuse_unless(SYS_socketpair, AF_UNIX, EACCES);
  filter.refuse(io_uring_setup, EPERM);  // it opens sockets past the filter
  filter.set(
      "WorkerOptions::network is false, which needs a kernel with system-call filters (seccomp)");
}

void give_up_other_processes() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  if (std::distance(begin(threads), end(threads)) != 1) {
    throw std::logic_error(
        "WorkerOptions::other_processes is false, and the program has several threads already; "
        "call ctxb_worker_serve before you start threads");
  }
  constexpr const char* purpose =
      "WorkerOptions::other_processes is false, which needs Linux 6.12 or newer with Landlock";
  Filter filter;
  filter.refuse_unless(SYS_prlimit64, 0, EPERM);  // a limit can end a process as a signal does
  filter.set(purpose);
  // A process in a Landlock domain can trace only processes of the same domain, whatever the domain
  // restricts, and all access to memory in /proc and elsewhere needs the right to trace.
  struct {
    std::uint64_t files = 0, ports = 0;
    std::uint64_t scoped = 2;  // LANDLOCK_SCOPE_SIGNAL
  } const rules;
  const Descriptor domain(
      static_cast<int>(::syscall(landlock_create_ruleset, &rules, sizeof rules, 0)));
  if (domain.get() < 0 || ::syscall(landlock_restrict_self, domain.get(), 0) != 0) {
    throw std::system_error(errno, std::generic_category(), purpose);
  }
}

}  // namespace ctxbroker::detail
