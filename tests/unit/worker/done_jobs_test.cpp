// SPDX-License-Identifier: Apache-2.0
// Which jobs of a worker the host is told of, in all orders of what happens on two threads.
#include "worker/done_jobs.hpp"

#include <gmock/gmock.h>

#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DoneJobsTest : public ::testing::Test {
 protected:
  void listen(bool lost_are_done = false) { jobs.listen(block_, lost_are_done); }
  // Writes the board as the worker does.
  void write(DoneBoard last) {
    *reinterpret_cast<DoneBoard*>(block_->pages->begin()) = last;
    jobs.look();
  }

  std::vector<std::uint64_t> told;
  DoneJobs jobs{[this](std::uint64_t job) { told.push_back(job); }};

 private:
  const std::shared_ptr<LentBlock> block_ =
      std::make_shared<LentBlock>(HostPages::make(sizeof(DoneBoard)));
};

TEST_F(DoneJobsTest, JobThatRangBeforeItsAnswerIsTold) {
  listen();
  jobs.add(1, 11);
  write(2);
  EXPECT_THAT(told, ElementsAre(11));
  jobs.add(2, 12);
  EXPECT_THAT(told, ElementsAre(11, 12));
  jobs.look();
  jobs.tell(12);
  EXPECT_THAT(told, ElementsAre(11, 12));
}

TEST_F(DoneJobsTest, AJobWithoutAProcessIsDone) {
  jobs.add(0, 1);
  listen();
  jobs.add(0, 2);
  jobs.end();
  jobs.add(0, 3);
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
}

// The process may end before the host has put down the last job that it answered.
TEST_F(DoneJobsTest, LostJobsAreDoneIfTheyBecomeDry) {
  for (const bool becomes_dry : {false, true}) {
    told.clear();
    listen(becomes_dry);
    jobs.add(5, 1);
    jobs.end();
    jobs.add(6, 2);
    EXPECT_THAT(told, SizeIs(becomes_dry ? 2 : 0));
    write(6);  // the old process, late
    EXPECT_THAT(told, SizeIs(becomes_dry ? 2 : 0));
  }
}

TEST_F(DoneJobsTest, AForgottenJobIsNotToldLater) {
  listen(true);
  jobs.add(1, 1);
  jobs.forget();
  write(5);
  jobs.add(6, 2);
  write(6);
  jobs.end();
  EXPECT_THAT(told, ElementsAre(2));
}

// A worker that gives two jobs one number.
TEST_F(DoneJobsTest, JobsWithOneNumberOfAWorkerAreToldApart) {
  listen();
  jobs.add(7, 1);
  jobs.add(7, 2);
  jobs.tell(1);
  EXPECT_THAT(told, ElementsAre(1));
  jobs.tell(2);
  EXPECT_THAT(told, ElementsAre(1, 2));
}

// It never says that a job is done.
TEST_F(DoneJobsTest, ListOfUnfinishedJobsIsCut) {
  listen(true);
  for (std::uint64_t job = 1; job <= 1000; ++job) jobs.add(job, job);
  EXPECT_THAT(told, IsEmpty());
  jobs.end();
  EXPECT_THAT(told, SizeIs(128));
  EXPECT_EQ(told.back(), 1000U);
}

TEST_F(DoneJobsTest, NoJobIsToldAfterTheStop) {
  listen(true);
  jobs.add(1, 1);
  jobs.stop();
  write(1);
  jobs.add(0, 2);
  jobs.end();
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace ctxbroker::detail
