// SPDX-License-Identifier: Apache-2.0
// What a worker gives up with WorkerOptions::network and other_processes. A worker without them is
// the positive control: it reaches the same things.
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "support/child_process.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using test::Attempt;
using test::Way;
using ::testing::HasSubstr;

constexpr int landlock_create_ruleset = 444;  // a system call that older headers lack

// A TCP socket that listens on the loopback device.
class Listener {
 public:
  Listener() : end_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    EXPECT_EQ(bind(end_, generic(), bytes), 0);
    EXPECT_EQ(listen(end_, 8), 0);
    EXPECT_EQ(getsockname(end_, generic(), &bytes), 0);
  }
  ~Listener() { close(end_); }
  std::uint64_t port() const { return ntohs(address_.sin_port); }
  int connect_here() {
    const int end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(end, generic(), sizeof address_), 0);
    return end;
  }
  int accepted() const { return accept(end_, nullptr, nullptr); }

 private:
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }
  int end_;
  sockaddr_in address_{};
};

struct Case {
  const char* name;
  Way way;
  int refusal;             // what a worker gets that has given it up
  bool some_lack = false;  // a system may lack it for everybody
};

constexpr Case network_cases[] = {{"tcp_connection", Way::tcp_connection, EACCES},
                                  {"tcp_connection_child", Way::tcp_connection_child, EACCES},
                                  {"ipv6_socket", Way::ipv6_socket, EACCES, true},
                                  {"netlink_socket", Way::netlink_socket, EACCES},
                                  {"packet_socket", Way::packet_socket, EACCES, true},
                                  {"vsock_socket", Way::vsock_socket, EACCES, true},
                                  {"ipv4_pair", Way::ipv4_pair, EACCES, true},
                                  {"socket_32_bit", Way::socket_32_bit, ENOSYS, true},
                                  {"io_uring", Way::io_uring, EPERM, true}};

// The system refuses with two numbers.
constexpr Case process_cases[] = {{"memory_write", Way::memory_write, EPERM},
                                  {"memory_read", Way::memory_read, EPERM},
                                  {"memory_file", Way::memory_file, EACCES},
                                  {"descriptor_link", Way::descriptor_link, EACCES},
                                  {"trace", Way::trace, EPERM},
                                  {"descriptor", Way::descriptor, EPERM, true},
                                  {"limit", Way::limit, EPERM},
                                  {"signal", Way::signal, EPERM},
                                  {"signal_child", Way::signal_child, EPERM}};

class WorkerBoundaryTest : public WorkerTest {
 public:
  ~WorkerBoundaryTest() override { prctl(PR_SET_PTRACER, 0); }

 protected:
  // Lets any process trace this one. Yama may let only parents trace, and the test could then not
  // show what happens without the option.
  WorkerBoundaryTest() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); }

  // A worker without the options must reach it, unless the system lacks it for everybody.
  void expect_reached(Worker& open, const Case& one) {
    const int control = attempt(open, one.way);
    if (one.some_lack && control != 0) {
      std::printf("%s: this system answers \"%s\"\n", one.name, std::strerror(control));
    } else {
      EXPECT_EQ(control, 0) << one.name;
    }
  }

  int attempt(Worker& worker, Way way) {
    const Attempt all{way, listener_.port(), static_cast<std::uint64_t>(getpid()),
                      reinterpret_cast<std::uint64_t>(&secret_)};
    std::int64_t error = -1;
    EXPECT_EQ(worker.call({Act::reaches, 0, &all, sizeof all}, &error, sizeof error), sizeof error);
    return static_cast<int>(error);
  }

  Listener listener_;
  volatile std::uint64_t secret_ = 7;
};

TEST_F(WorkerBoundaryTest, WorkerWithoutNetworkCannotReachOut) {
  Worker open(options("open"));
  WorkerOptions held = options("held");
  held.network = false;
  Worker closed(held);
  for (const Case& one : network_cases) {
    expect_reached(open, one);
    EXPECT_EQ(attempt(closed, one.way), one.refusal) << one.name;
  }
  EXPECT_EQ(attempt(closed, Way::unix_socket), 0);
  // The one option is not the other.
  EXPECT_EQ(attempt(closed, Way::signal), 0);
  EXPECT_EQ(say(closed, Act::echo, "on"), "on");
}

TEST_F(WorkerBoundaryTest, WorkerWithoutOtherProcessesCannotReachTheHost) {
  if (!can_give_up_other_processes()) GTEST_SKIP() << "this kernel or a sanitizer prevents it";
  Worker open(options("open"));
  for (const Case& one : process_cases) {
    expect_reached(open, one);
    if (one.way == Way::memory_write) {
      EXPECT_EQ(secret_, 666U);
    } else if (one.way == Way::memory_file) {
      EXPECT_EQ(secret_, 667U);
    }
  }
  rlimit now{};
  getrlimit(RLIMIT_CORE, &now);
  EXPECT_EQ(now.rlim_max, 0U);  // the worker's own limit

  WorkerOptions held = options("held");
  held.other_processes = false;
  Worker closed(held);
  secret_ = 7;
  for (const Case& one : process_cases) {
    EXPECT_EQ(attempt(closed, one.way), one.refusal) << one.name;
  }
  EXPECT_EQ(secret_, 7U);
  EXPECT_EQ(attempt(closed, Way::own_child), 0);
  EXPECT_EQ(attempt(closed, Way::tcp_connection), 0);
  // The host still ends it, and starts it again with the same limits.
  closed.kill("for a test");
  EXPECT_EQ(attempt(closed, Way::memory_write), EPERM);
  EXPECT_EQ(attempt(open, Way::memory_write), 0);
}

// The host decides which sockets it opens and passes to a worker.
TEST_F(WorkerBoundaryTest, ASocketThatTheHostPassesWorks) {
  WorkerOptions held = options();
  held.network = false;
  Worker worker(held);
  const int end = listener_.connect_here();
  ask(worker, Act::sends, worker.pass_descriptor(end));
  close(end);
  const int accepted = listener_.accepted();
  std::array<char, 6> text{};
  EXPECT_EQ(read(accepted, text.data(), 5), 5);
  EXPECT_STREQ(text.data(), "hello");
  close(accepted);
}

TEST_F(WorkerBoundaryTest, AProgramWithThreadsIsNotHeldAndSaysSo) {
  WorkerOptions own = options("own", {"TEST_WORKER_THREAD=1"});
  own.module.clear();
  own.program = worker_file("worker_own_program");
  Worker(own).start();
  own.network = false;  // this one holds for all threads
  Worker(own).start();
  own.other_processes = false;
  Worker worker(own);
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { worker.start(); }),
              HasSubstr("call ctxb_worker_serve before you start threads"));
}

// In a child: one system call answers from now on as on another kernel, here and in workers.
TEST_F(WorkerBoundaryTest, DISABLED_WorkerOnAKernelWithoutACall) {
  const auto number = [](const char* name) {
    const char* const value = std::getenv(name);
    return static_cast<std::uint32_t>(value != nullptr ? std::atoi(value) : 0);
  };
  std::array<sock_filter, 4> code{
      {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
       {BPF_JMP | BPF_K | BPF_JEQ, 0, 1, number("TEST_CALL")},
       {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | number("TEST_ERROR")},
       {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  const sock_fprog program{code.size(), code.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
  WorkerOptions both = options();
  Worker(both).start();
  both.network = both.other_processes = false;
  Worker worker(both);
  std::printf("%s\n", error_of(ErrorKind::plugin_load, [&] { worker.start(); }).c_str());
  EXPECT_EQ(worker.state(), WorkerState::failed);
}

TEST_F(WorkerBoundaryTest, KernelThatCannotHoldAWorkerIsAClearError) {
  if (sanitized) GTEST_SKIP() << "a sanitizer starts a thread before the worker serves";
  struct Kernel {
    int call, error;
    const char* text;
  };
  for (const Kernel& kernel :
       {Kernel{SYS_seccomp, ENOSYS, "network is false, which needs a kernel with system-call filt"},
        Kernel{landlock_create_ruleset, ENOSYS, "needs Linux 6.12 or newer with Landlock"},
        Kernel{landlock_create_ruleset, E2BIG, "needs Linux 6.12 or newer with Landlock"}}) {
    const ChildResult child = run_child(
        "WorkerBoundaryTest.DISABLED_WorkerOnAKernelWithoutACall",
        {{"TEST_CALL", std::to_string(kernel.call)}, {"TEST_ERROR", std::to_string(kernel.error)}});
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_THAT(child.output, HasSubstr(kernel.text));
    EXPECT_THAT(child.output, HasSubstr(std::strerror(kernel.error)));
  }
}

}  // namespace
}  // namespace ctxbroker
