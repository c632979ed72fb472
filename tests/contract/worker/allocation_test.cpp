// SPDX-License-Identifier: Apache-2.0
// A call to a worker that is ready allocates nothing, on either side. The host's thread may be one
// that plays sound.
#include "support/allocation_count.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

TEST_F(WorkerTest, ACallAllocatesNothing) {
  if (!bench::allocations_are_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const auto spin : {std::chrono::microseconds(0), std::chrono::microseconds(50)}) {
    WorkerOptions own = options("own");
    own.module.clear();
    own.program = worker_file("worker_counting_program");
    own.spin = spin;
    const std::uint64_t at_first = bench::allocations_of_this_thread();
    Worker worker(own);
    const std::string message(own.message_bytes, 'x');
    const auto call = [&](std::uint32_t milliseconds) {
      std::uint64_t in_worker = 0;
      worker.call({milliseconds, 0, message.data(), message.size()}, &in_worker, sizeof in_worker);
      return in_worker;
    };
    const std::uint64_t in_worker = call(0);
    EXPECT_GT(bench::allocations_of_this_thread(), at_first);  // the control, also the next one
    EXPECT_GT(in_worker, 0U);
    // In 20 ms, the caller looks several times whether the process lives.
    for (const std::uint32_t milliseconds : {0U, 0U, 0U, 20U, 0U}) {
      const std::uint64_t before = bench::allocations_of_this_thread();
      const std::uint64_t then_in_worker = call(milliseconds);
      const std::uint64_t after = bench::allocations_of_this_thread();
      EXPECT_EQ(after, before) << milliseconds;
      EXPECT_EQ(then_in_worker, in_worker) << milliseconds;
    }
  }
}

}  // namespace
}  // namespace ctxbroker
