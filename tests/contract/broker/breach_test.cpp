// SPDX-License-Identifier: Apache-2.0
// What the host refuses a plug-in, and how it says so.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Breach {
  const char* behaviour;
  const char* says;
  ErrorKind kind = ErrorKind::plugin_failed;
};

std::string name_of(const ::testing::TestParamInfo<Breach>& info) {
  return info.param.behaviour;
}

class ProcessBreachTest : public BrokerTest, public ::testing::WithParamInterface<Breach> {};

TEST_P(ProcessBreachTest, BreachInProcessIsRefusedStruckAndExplained) {
  const Breach& breach = GetParam();
  PluginInstance instance = active(breach.behaviour);
  EXPECT_THAT(error_text(breach.kind, [&] { run({&instance}); }),
              AllOf(HasSubstr(breach.behaviour), HasSubstr(breach.says)));
  EXPECT_EQ(instance.metrics().strikes, 1u);
  EXPECT_THAT(said("strike"), Contains(HasSubstr(breach.says)));
  PluginInstance neighbour = active("affine");
  EXPECT_EQ(run({&neighbour})[3], 3.0F) << "nobody else is hurt";
}

INSTANTIATE_TEST_SUITE_P(
    All, ProcessBreachTest,
    ::testing::Values(
        Breach{"process_allocates", "not allowed while the instance is in process"},
        Breach{"invented_kernel", "does not come from get_kernel", ErrorKind::context_lost},
        Breach{"null_stream", "the stream is not the one lent"},
        Breach{"too_many_threads", "a block of 1024 x 2 x 1 has 2048 threads; at most"},
        Breach{"upload_too_much", "32769 bytes after 32769; one process may upload 65536"}),
    name_of);

class LateBreachTest : public BrokerTest, public ::testing::WithParamInterface<Breach> {};

// The driver calls the function when process has returned, and takes the work for done.
TEST_P(LateBreachTest, FunctionThatFailsAfterProcessFailsTheJob) {
  const Breach& breach = GetParam();
  if (broker.gate().mode == GateMode::none) GTEST_SKIP() << "without the gate, the host ends";
  PluginInstance instance = active(breach.behaviour);
  for (int job = 0; job < 2; ++job) {
    EXPECT_THAT(error_text(breach.kind, [&] { run({&instance}); }),
                AllOf(HasSubstr(breach.behaviour), HasSubstr("the job's outputs")));
  }
  EXPECT_THAT(said("strike"), Contains(HasSubstr(breach.says)));
  PluginInstance neighbour = active("affine");
  EXPECT_EQ(run({&neighbour})[3], 3.0F) << "nobody else is hurt";
}

INSTANTIATE_TEST_SUITE_P(All, LateBreachTest,
                         ::testing::Values(Breach{"throws_later", "threw an exception"},
                                           Breach{"exits_later", "ended its thread"}),
                         name_of);

TEST_F(BrokerTest, HostsCallsInsideAPluginsCaptureLeaveItValid) {
  if (broker.gate().mode == GateMode::none) GTEST_SKIP() << "nobody knows of captures then";
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    PluginInstance instance = create("allocates_while_capturing", kind);
    EXPECT_NO_THROW(instance.activate(test_sizes)) << to_string(kind);
    instance.deactivate();
  }
}

TEST_F(BrokerTest, KernelsOfAnEarlierActivationAreDead) {
  PluginInstance instance = active("earlier_kernel");
  EXPECT_EQ(run({&instance})[3], 3.0F);
  instance.deactivate();
  instance.activate(test_sizes);
  EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { run({&instance}); }),
              HasSubstr("does not come from get_kernel in this activation"));
}

TEST_F(BrokerTest, ArgumentSizesAreComparedWhereTheDriverTellsThem) {
  PluginInstance instance = active("wrong_argument");
  try {
    run({&instance});
    GTEST_SKIP() << "this driver does not tell the sizes of a kernel's arguments";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("argument 3 (of 5) has 8 bytes; the kernel takes 4 there, at offset 16"));
  }
}

class ActivateBreachTest : public BrokerTest, public ::testing::WithParamInterface<Breach> {};

TEST_P(ActivateBreachTest, BreachInActivateIsRefusedAndExplained) {
  const Breach& breach = GetParam();
  PluginInstance instance = create(breach.behaviour);
  EXPECT_THAT(error_text(breach.kind, [&] { instance.activate(test_sizes); }),
              AllOf(HasSubstr(breach.behaviour), HasSubstr(breach.says)));
  EXPECT_FALSE(instance.active());
}

INSTANTIATE_TEST_SUITE_P(
    All, ActivateBreachTest,
    ::testing::Values(Breach{"unknown_kernel", "no kernel \"no_such_kernel\"; it has \"affine\";"},
                      Breach{"unknown_module", "no module \"no_such_module\""},
                      Breach{"foreign_release", "is not this instance's"}),
    name_of);

}  // namespace
}  // namespace ctxbroker
