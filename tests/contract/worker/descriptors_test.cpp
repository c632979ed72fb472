// SPDX-License-Identifier: Apache-2.0
// Descriptors that a worker passes: the host takes memory alone, and never waits for the end of
// what it got. A socket that has still to send is one whose end waits.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

using Time = std::chrono::steady_clock;

// A TCP socket that listens on the loopback device, and reads nothing.
class DeafListener {
 public:
  DeafListener() : end_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    constexpr int room = 4096;
    setsockopt(end_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    EXPECT_EQ(bind(end_, generic(), bytes), 0);
    EXPECT_EQ(listen(end_, 64), 0);
    EXPECT_EQ(getsockname(end_, generic(), &bytes), 0);
  }
  ~DeafListener() { close(end_); }  // all ends that wait go on
  std::uint64_t port() const { return ntohs(address_.sin_port); }
  int connect_lingering() {
    const int end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(end, generic(), sizeof address_), 0);
    const std::vector<char> data(std::size_t{1} << 16);
    while (send(end, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
    const linger long_time{1, 20};
    EXPECT_EQ(setsockopt(end, SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time), 0);
    return end;
  }

 private:
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }
  int end_;
  sockaddr_in address_{};
};

class WorkerDescriptorTest : public WorkerTest {
 protected:
  static milliseconds time_of(const std::function<void()>& work) {
    const auto begin = Time::now();
    work();
    return std::chrono::duration_cast<milliseconds>(Time::now() - begin);
  }
};

TEST_F(WorkerDescriptorTest, CloseOfALingeringSocketWaitsWithoutAWorker) {
  std::future<void> closed;
  DeafListener listener;
  const int end = listener.connect_lingering();
  closed = std::async(std::launch::async, [end] { close(end); });
  EXPECT_EQ(closed.wait_for(milliseconds(500)), std::future_status::timeout);
}

// In one packet or in several. Those after the first are never taken out of the socket.
TEST_F(WorkerDescriptorTest, PassedLingeringSocketsMakeNobodyWait) {
  struct Case {
    std::uint64_t packets, in_each;
    const char* text;
  };
  for (const Case& one : {Case{1, 1, "that is not memory"}, Case{20, 1, "that is not memory"},
                          Case{1, 3, "a packet that is none"}}) {
    const Left before = settled_left();
    {
      DeafListener listener;
      WorkerOptions with = options();
      with.call_timeout = std::chrono::seconds(10);
      {
        Worker worker(with);
        worker.start();
        const std::size_t told = ends().size();
        const std::vector<std::uint64_t> order{listener.port(), one.packets, one.in_each};
        const auto waited = time_of([&] {
          EXPECT_THAT(error_of(ErrorKind::context_lost,
                               [&] {
                                 worker.call({Act::passes_sockets, 0, order.data(),
                                              order.size() * sizeof order[0]});
                               }),
                      HasSubstr(one.text));
        });
        EXPECT_LT(waited, std::chrono::seconds(4));
        EXPECT_STREQ(to_string(wait_for_end(told + 1).cause), "lie");
        const auto next = time_of([&] { EXPECT_EQ(say(worker, Act::echo, "after"), "after"); });
        EXPECT_LT(next, std::chrono::seconds(4));
        EXPECT_LT(time_of([&] { worker.close(); }), std::chrono::seconds(4));
      }
    }
    EXPECT_EQ(left_after_all(before), before);  // when the other side has gone
  }
}

TEST_F(WorkerDescriptorTest, PassedDescriptorsOfOtherThingsThanMemoryAreRefused) {
  Worker worker(options());
  std::size_t number = 0;
  for (const Act act : {Act::passes_pipe, Act::passes_file, Act::passes_folder}) {
    EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { worker.call({act}); }),
                HasSubstr("it passed a descriptor that is not memory"));
    EXPECT_STREQ(to_string(wait_for_end(++number).cause), "lie");
    EXPECT_EQ(worker.take_descriptor(5), -1);
    EXPECT_EQ(say(worker, Act::echo, "after"), "after");
  }
  worker.call({Act::gives});
  int given = -1;
  for (int i = 0; i < 5000 && given < 0; ++i) {
    given = worker.take_descriptor(5);
    if (given < 0) std::this_thread::sleep_for(milliseconds(1));
  }
  struct stat about {};
  EXPECT_EQ(fstat(given, &about), 0);
  EXPECT_EQ(about.st_size, 4096);
  close(given);
  EXPECT_EQ(worker.exits(), number);
}

TEST_F(WorkerDescriptorTest, FloodOfDescriptorsIsNoHarm) {
  const Left before = settled_left();
  {
    Worker worker(options());
    worker.call({Act::passes_many});
    EXPECT_EQ(say(worker, Act::echo, "after"), "after");
    EXPECT_EQ(worker.exits(), 0U);
    EXPECT_LT(left().descriptors, before.descriptors + 200);  // 16, and those to be closed
    kill(worker.process_id(), SIGKILL);
    EXPECT_STREQ(to_string(wait_for_end().cause), "signal");
  }
  EXPECT_EQ(left_after_all(before), before);
}

}  // namespace
}  // namespace ctxbroker
