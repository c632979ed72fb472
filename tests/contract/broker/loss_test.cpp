// A faulting kernel ends CUDA in the process: everything here runs in a child.
#include <gmock/gmock.h>

#include <cstdio>

#include "broker_fixture.hpp"
#include "child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class LossChildTest : public BrokerTest {};

TEST_F(LossChildTest, DISABLED_AFaultIsAnErrorAndTheHostGoesOn) {
  PluginInstance faulty = active("faults"), innocent = active("affine", LeaseKind::private_own);
  Chain chain(broker, {&innocent, &faulty}, test_sizes);
  float pixel[4] = {1, 2, 3, 4};
  EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { chain.process(pixel, pixel, {}); }),
              AllOf(HasSubstr("faults"), HasSubstr("CUDA_ERROR_")));
  // One clear error from then on, no call with a dead handle, no crash.
  EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { chain.process(pixel, pixel, {}); }),
              HasSubstr("is gone"));
  faulty.deactivate();
  innocent.deactivate();
  EXPECT_THAT(said("plugin"), Contains("context lost"));
  EXPECT_FALSE(faulty.active());
  EXPECT_EQ(innocent.metrics().memory_bytes, 0u);
  EXPECT_THROW(innocent.activate(test_sizes), Error) << "no driver comes back from a fault";
}

TEST_F(LossChildTest, DISABLED_ExitWithoutCloseIsNoError) {
  auto* leaked = new Broker(Broker::open(options()));  // NOLINT: on purpose, as some hosts do
  static PluginInstance instance =
      leaked->create(leaked->load(test_plugin("behaviours")), "affine");
  instance.activate(test_sizes);
}

TEST(LossTest, AFaultIsAnErrorAndTheHostGoesOn) {
  const ChildResult child = run_child("LossChildTest.DISABLED_AFaultIsAnErrorAndTheHostGoesOn");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

TEST(LossTest, ExitWithoutCloseIsNoError) {
  const ChildResult child = run_child("LossChildTest.DISABLED_ExitWithoutCloseIsNoError",
                                      {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

}  // namespace
}  // namespace ctxbroker
