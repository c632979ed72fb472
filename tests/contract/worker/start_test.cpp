// SPDX-License-Identifier: Apache-2.0
// Starts in odd circumstances: a slow disk, a host without standard descriptors, a host that ends
// the process while it starts.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "support/child_process.hpp"
#include "support/temp_folder.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

using Time = std::chrono::steady_clock;

class WorkerStartTest : public WorkerTest {
 protected:
  // A worker program that needs this long until it serves, as on a slow disk.
  WorkerOptions slow(const std::string& seconds) {
    WorkerOptions made = options("slow");
    const auto file = folder_.path() / "slow_program";
    std::ofstream(file) << "#!/bin/sh\nsleep " << seconds << "\nexec "
                        << worker_file("worker_own_program").string() << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    made.module.clear();
    made.program = file;
    return made;
  }
  TempFolder folder_;
};

TEST_F(WorkerStartTest, SlowStartGetsTheStartTimeout) {
  WorkerOptions with = slow("2");
  with.heartbeat_timeout = milliseconds(500);
  with.start_timeout = std::chrono::seconds(60);
  Worker worker(with);
  worker.start();
  std::uint64_t bytes = 0;
  worker.call({7, 0, "text", 4}, &bytes, sizeof bytes);
  EXPECT_EQ(bytes, 4U);
  EXPECT_EQ(worker.exits(), 0U);
}

TEST_F(WorkerStartTest, StartThatNeverServesIsLate) {
  WorkerOptions with = slow("600");
  with.heartbeat_timeout = milliseconds(300);
  with.start_timeout = milliseconds(1000);
  Worker worker(with);
  const auto begin = Time::now();
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { worker.start(); }),
              HasSubstr("did not end within 1000 ms"));
  EXPECT_LT(Time::now() - begin, std::chrono::seconds(20));
}

// In a child: each set of closed descriptors, before the worker is made and between two starts.
TEST_F(WorkerStartTest, DISABLED_StartsWithoutStandardDescriptors) {
  const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  const auto check = [&](bool good, const char* what, int set) {
    if (!good) dprintf(kept, "FAILED: %s with set %d\n", what, set);
  };
  const auto echoes = [&](Worker& worker) {
    try {
      return say(worker, Act::echo, "text") == "text";
    } catch (const std::exception& error) {
      dprintf(kept, "%s\n", error.what());
      return false;
    }
  };
  for (int set = 1; set < 8; ++set) {
    Worker early(options("early"));
    check(echoes(early), "with all", set);
    early.kill("for the next process");
    const auto close_some = [&] {
      for (int i = 0; i < 3; ++i) {
        if ((set & 1 << i) != 0) close(i);
      }
    };
    close_some();
    check(echoes(early), "the next process", set);
    Worker late(options("late"));
    check(echoes(late), "a new worker", set);
    late.kill("for the next process");
    check(echoes(late), "its next process", set);
    late.close();
    early.close();
    for (int i = 0; i < 3; ++i) {
      if (fcntl(i, F_GETFD) < 0 && open("/dev/null", O_RDWR) != i) dprintf(kept, "FAILED: open\n");
    }
  }
  dprintf(kept, "all sets were tried\n");
}

TEST_F(WorkerStartTest, HostWithoutStandardDescriptorsStartsWorkers) {
  const ChildResult child =
      run_child("WorkerStartTest.DISABLED_StartsWithoutStandardDescriptors", {});
  EXPECT_THAT(child.output, HasSubstr("all sets were tried"));
  EXPECT_EQ(child.output.find("FAILED"), std::string::npos) << child.output;
}

TEST_F(WorkerStartTest, KillDuringAStartLeavesTheWorkerAsBefore) {
  WorkerOptions with = slow("600");
  with.start_timeout = std::chrono::seconds(60);
  with.crash_limit = 1;
  Worker worker(with);
  for (int round = 0; round < 2; ++round) {
    auto start = std::async(std::launch::async, [&] {
      return error_of(ErrorKind::plugin_load, [&] { worker.call({7}); });  // not Worker::start
    });
    while (worker.process_id() == 0) std::this_thread::sleep_for(milliseconds(1));
    worker.kill("the user wants no more");
    EXPECT_THAT(start.get(), HasSubstr("the host ended it: the user wants no more"));
    EXPECT_STREQ(to_string(worker.state()), "missing");
  }
  // The control: a process that ends by itself while it starts.
  auto start = std::async(std::launch::async, [&] {
    return error_of(ErrorKind::plugin_load, [&] { worker.call({7}); });
  });
  while (worker.process_id() == 0) std::this_thread::sleep_for(milliseconds(1));
  kill(worker.process_id(), SIGKILL);
  EXPECT_THAT(start.get(), HasSubstr("signal 9"));
  EXPECT_STRNE(to_string(worker.state()), "missing");
}

}  // namespace
}  // namespace ctxbroker
