// SPDX-License-Identifier: Apache-2.0
// What is known of a stream, its captures and its failed work, is known until the driver has ended
// the stream. Its handle may be another stream's before the driver's call has returned.
#include "context/open_captures.hpp"

#include <gmock/gmock.h>

#include "context/failed_work.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OpenCapturesTest : public ::testing::Test {
 protected:
  ~OpenCapturesTest() override {
    for (const void* owner : {&first, &second}) all.end_left(owner, [](CUstream) {});
    all.ended(stream);
  }
  int count_of_ended(const void* owner) {
    int count = 0;
    all.end_left(owner, [&](CUstream) { ++count; });
    return count;
  }

  OpenCaptures& all = OpenCaptures::all();
  int first = 0, second = 0;                                       // owners
  CUstream const stream = reinterpret_cast<CUstream>(&first);      // any value
  CUcontext const context = reinterpret_cast<CUcontext>(&second);  // any value
};

TEST_F(OpenCapturesTest, CaptureIsOpenUntilTheDriverHasEndedItsStream) {
  all.begun(&first, stream, context);
  const EndingCaptures refused(stream);
  EXPECT_TRUE(all.is_open_here());
  refused.settle(false);
  EXPECT_TRUE(all.is_open_here());
  const EndingCaptures ended(stream);
  EXPECT_TRUE(all.is_open_here());
  ended.settle(true);
  EXPECT_FALSE(all.is_open_here());
}

TEST_F(OpenCapturesTest, CapturesOfAContextAreOpenUntilTheDriverHasEndedIt) {
  all.begun(&first, stream, context);
  all.begun(&second, CU_STREAM_PER_THREAD, nullptr);  // in another context
  EndingCaptures(context).settle(false);
  EXPECT_THAT(all.left_by(&first), ElementsAre(stream));
  EndingCaptures(context).settle(true);
  EXPECT_THAT(all.left_by(&first), IsEmpty());
  EXPECT_THAT(all.left_by(&second), ElementsAre(CU_STREAM_PER_THREAD));
}

TEST_F(OpenCapturesTest, CaptureOfTheNextStreamWithTheHandleIsNotForgotten) {
  all.begun(&first, stream, context);
  const EndingCaptures ending(stream);
  all.begun(&second, stream, context);  // the driver has given the handle out again
  ending.settle(true);
  EXPECT_THAT(all.left_by(&first), IsEmpty());
  EXPECT_THAT(all.left_by(&second), ElementsAre(stream));
}

// Drivers crash on the handle of a stream that has ended.
TEST_F(OpenCapturesTest, CaptureOfAStreamThatEndsIsNotEndedByItsOwner) {
  all.begun(&first, stream, context);
  const EndingCaptures ending(stream);
  EXPECT_EQ(count_of_ended(&first), 0);
  EXPECT_TRUE(all.is_open_here());
  ending.settle(true);
  EXPECT_FALSE(all.is_open_here());
}

TEST_F(OpenCapturesTest, CaptureWhoseStreamTheDriverKeepsIsEndedByItsOwner) {
  all.begun(&first, stream, context);
  EndingCaptures(stream).settle(false);
  EXPECT_EQ(count_of_ended(&first), 1);
  EXPECT_FALSE(all.is_open_here());
}

TEST_F(OpenCapturesTest, CaptureThatOutlivesItsOwnerStaysOpen) {
  all.begun(&first, stream, context);
  const EndingCaptures ending(stream);
  EXPECT_EQ(count_of_ended(&first), 0);
  ending.settle(false);
  EXPECT_TRUE(all.is_open_here());
  EXPECT_EQ(count_of_ended(&first), 0) << "a later owner at that address has not begun it";
}

TEST_F(OpenCapturesTest, FailureInTheNextStreamWithTheHandleIsNotForgotten) {
  const TenantId tenant{77};
  const auto take = [&] { return take_failed_work(tenant, stream, FailureReader::code); };
  add_failed_work(tenant, stream);
  const std::uint64_t before = failed_work_count();
  forget_failed_work(stream, before);
  EXPECT_FALSE(take());
  add_failed_work(tenant, stream);
  forget_failed_work(stream, before);
  EXPECT_TRUE(take());
  for (int i = 0; i < 100; ++i) add_failed_work(tenant, stream);  // more than are kept
  forget_failed_work(stream, before);
  EXPECT_TRUE(take());
  add_failed_work(tenant, stream);
  forget_failed_work(stream);
  EXPECT_FALSE(take());
}

}  // namespace
}  // namespace ctxbroker::detail
