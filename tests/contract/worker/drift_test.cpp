// SPDX-License-Identifier: Apache-2.0
// Nothing is left of workers that ended: processes, descriptors, threads, shared memory.
// CTXB_WORKER_DEATHS=200 does it so often for each kind.
#include <cstdlib>
#include <thread>

#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

// ThreadSanitizer has a thread of its own from the first thread on.
void begin_with_a_thread() {
  std::thread([] {}).join();
}

TEST_F(WorkerTest, ManyDeathsLeaveNothing) {
  begin_with_a_thread();
  const char* const asked = std::getenv("CTXB_WORKER_DEATHS");
  const int deaths = asked != nullptr ? std::atoi(asked) : 5;
  const Left before = settled_left();
  {
    WorkerOptions with = options();
    with.call_timeout = std::chrono::milliseconds(100);
    if (!sanitized) with.memory_limit = 64 << 20;
    Worker worker(with);
    WorkerBuffer block = worker.lend(4096);
    const Left one = left();
    for (const Act act :
         {Act::segfault, Act::aborts, Act::exit_3, Act::kills_itself, Act::endless, Act::deadlock,
          Act::allocates, Act::bad_sequence, Act::closes_all, Act::answers_nobody, Act::prints}) {
      if (sanitized && act == Act::allocates) continue;
      for (int i = 0; i < deaths; ++i) {
        worker.start();
        try {
          worker.call({static_cast<std::uint32_t>(act), 0, nullptr, 0}, nullptr, 0,
                      act == Act::endless || act == Act::deadlock ? std::chrono::milliseconds(20)
                                                                  : std::chrono::seconds(5));
        } catch (const Error&) {
        }
        worker.kill("a round is over");
      }
      EXPECT_EQ(worker.process_id(), 0) << act;
      worker.start();
      EXPECT_EQ(left_after_all(one), one) << "after act " << act;
    }
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerTest, FailedStartsLeaveNothing) {
  begin_with_a_thread();
  const Left before = settled_left();
  {
    WorkerOptions refusing = options("hostile", {"TEST_WORKER_START=refuse"});
    Worker worker(refusing);
    for (int i = 0; i < 5; ++i) {
      error_of(ErrorKind::plugin_load, [&] { worker.start(); });
    }
  }
  EXPECT_EQ(left_after_all(before), before);
}

}  // namespace
}  // namespace ctxbroker
