// SPDX-License-Identifier: Apache-2.0
// The life of an instance: creation, parameters, activation, state, and what is given back.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(BrokerTest, ParametersStartAtTheirDefaultsAndAreChecked) {
  PluginInstance instance = create("affine");
  EXPECT_EQ(instance.parameter("factor"), 1);
  instance.set_parameter("factor", 2.5);
  EXPECT_EQ(instance.parameter("factor"), 2.5);
  EXPECT_THAT(
      error_text(ErrorKind::parameter_value, [&] { instance.set_parameter("factor", 101); }),
      HasSubstr("-100 to 100"));
  EXPECT_THAT(error_text(ErrorKind::unknown_parameter, [&] { instance.set_parameter("facto", 1); }),
              HasSubstr("factor, offset, mode"));
  error_text(ErrorKind::parameter_value, [&] { instance.set_parameter("mode", 0.5); });
  EXPECT_EQ(instance.parameter("factor"), 2.5) << "a refusal changes nothing";
}

TEST_F(BrokerTest, OnlyAutomatableParametersChangeWhileActive) {
  PluginInstance instance = active("affine");
  instance.set_parameter("factor", 3);
  EXPECT_EQ(run({&instance})[1], 3.0F);
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { instance.set_parameter("offset", 1); }),
              HasSubstr("deactivate"));
  instance.deactivate();
  instance.set_parameter("offset", 1);
  instance.activate(test_sizes);
  EXPECT_EQ(run({&instance})[1], 4.0F);
}

TEST_F(BrokerTest, ActivationIsOnceAndCanBeRepeated) {
  PluginInstance instance = create("affine");
  EXPECT_FALSE(instance.active());
  instance.deactivate();  // nothing happens
  for (int life = 0; life < 3; ++life) {
    instance.activate(test_sizes);
    EXPECT_TRUE(instance.active());
    error_text(ErrorKind::wrong_state, [&] { instance.activate(test_sizes); });
    instance.deactivate();
    EXPECT_FALSE(instance.active());
  }
  error_text(ErrorKind::invalid_argument, [&] { instance.activate({0, 1, 0, false}); });
  error_text(ErrorKind::invalid_argument, [&] { instance.activate({~0u, ~0u, 0, false}); });
  error_text(ErrorKind::invalid_argument, [&] { instance.activate({1, 1, -1.0, false}); });
  EXPECT_FALSE(instance.active());
}

TEST_F(BrokerTest, GlobalVariablesOfInstancesAreSeparate) {
  PluginInstance biased = active("bias"), plain = active("affine");
  PluginInstance also_biased = active("bias");
  EXPECT_EQ(run({&biased})[1], 101.0F);
  EXPECT_EQ(run({&plain})[1], 1.0F);
  EXPECT_EQ(run({&also_biased, &plain, &biased})[1], 201.0F);
}

TEST_F(BrokerTest, CopiesClearsAndUploadsOfThePluginWork) {
  PluginInstance instance = active("scratch");
  const auto output = run({&instance});
  EXPECT_EQ(output[0], 42.0F);
  EXPECT_EQ(output[7], 7.0F);
  EXPECT_EQ(instance.metrics().memory_bytes, 64u * 64 * 16);
  instance.deactivate();
  EXPECT_EQ(instance.metrics().memory_bytes, 0u);
  EXPECT_EQ(instance.metrics().memory_peak_bytes, 64u * 64 * 16);
  EXPECT_EQ(instance.metrics().strikes, 0u) << "it forgot nothing";
}

TEST_F(BrokerTest, MetricsCountJobsLaunchesAndTime) {
  PluginInstance instance = active("affine");
  for (int job = 0; job < 3; ++job) run({&instance}, 64, 64);
  EXPECT_EQ(instance.metrics().jobs, 3u);
  EXPECT_EQ(instance.metrics().launches, 3u);
  EXPECT_GT(instance.metrics().device_seconds, 0);
  EXPECT_LT(instance.metrics().device_seconds, 10);
}

TEST_F(BrokerTest, StateGoesOutAndInInPieces) {
  PluginInstance instance = create("affine"), other = create("affine");
  auto state = instance.save_state();
  ASSERT_EQ(state.size(), 100000u);
  state[99999] = std::byte{9};
  other.load_state(state);
  EXPECT_EQ(other.save_state(), state);
  EXPECT_NE(instance.save_state(), state);
}

TEST_F(BrokerTest, AStateThatIsNotThePluginsIsRefusedAndChangesNothing) {
  PluginInstance instance = create("affine");
  const auto before = instance.save_state();
  for (const auto& bad : {std::vector<std::byte>{}, std::vector<std::byte>(10)}) {
    EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { instance.load_state(bad); }),
                AllOf(HasSubstr("this state is not mine"), HasSubstr("CTXB_ERROR_VERSION")));
  }
  EXPECT_EQ(instance.save_state(), before);
  instance.activate(test_sizes);
  error_text(ErrorKind::wrong_state, [&] { return instance.save_state(); });
  error_text(ErrorKind::wrong_state, [&] { instance.load_state(before); });
}

TEST_F(BrokerTest, APluginWithoutStateHasNone) {
  PluginInstance instance = broker.create(broker.load(test_plugin("unloadable")), "small");
  EXPECT_TRUE(instance.save_state().empty());
  EXPECT_NO_THROW(instance.load_state({}));
  error_text(ErrorKind::plugin_failed, [&] { instance.load_state({std::byte{1}}); });
}

TEST_F(BrokerTest, ActiveInstanceTellsLatencyAndTail) {
  PluginInstance instance = create("affine");
  EXPECT_EQ(instance.latency_frames(), 0u);
  instance.activate(test_sizes);
  EXPECT_EQ(instance.latency_frames(), 3u);
  EXPECT_EQ(instance.tail_frames(), UINT64_MAX);
}

TEST_F(BrokerTest, LogsReachTheHostInThePluginsName) {
  PluginInstance instance = active("affine");
  EXPECT_THAT(said("plugin"), Contains("hello from activate"));
}

TEST_F(BrokerTest, CallbacksAreAnsweredOnceEach) {
  const auto answered = [&] {
    const auto texts = said("plugin");
    return std::count(texts.begin(), texts.end(), "called back");
  };
  PluginInstance instance = active("affine");  // asks in activate
  broker.poll();
  broker.poll();
  EXPECT_EQ(answered(), 1);
}

TEST_F(BrokerTest, HostTellsThePluginItsThreadsRole) {
  PluginInstance instance = active("threads");
  run({&instance});
  EXPECT_EQ(instance.metrics().jobs, 1u);
}

TEST_F(BrokerTest, TheNativeContextIsTheLeases) {
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own}) {
    PluginInstance instance = active("native_context", kind);
    EXPECT_TRUE(instance.active());
  }
}

// ---- Failures --------------------------------------------------------------------------------

TEST_F(BrokerTest, AFailedActivationSaysWhyAndHoldsNothing) {
  PluginInstance instance = create("activate_fails");
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { instance.activate(test_sizes); }),
                AllOf(HasSubstr("activate_fails"), HasSubstr("the lens cap is on"),
                      HasSubstr("CTXB_ERROR_UNSUPPORTED")));
    EXPECT_FALSE(instance.active());
  }
  PluginInstance silent = create("activate_fails_silently");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { silent.activate(test_sizes); }),
              HasSubstr("did not say why"));
}

TEST_F(BrokerTest, MemoryOfAFailedActivationIsGivenBack) {
  PluginInstance instance = create("activate_fails_with_memory");
  error_text(ErrorKind::plugin_failed, [&] { instance.activate(test_sizes); });
  EXPECT_EQ(instance.metrics().memory_bytes, 0u);
  EXPECT_EQ(instance.metrics().memory_peak_bytes, 4096u);
}

TEST_F(BrokerTest, ForgottenMemoryIsGivenBackAndStruck) {
  const RawDriver driver(broker.driver().path);
  CUcontext own = driver.make_context();
  PluginInstance instance = create("leaks");
  instance.activate(test_sizes);
  instance.deactivate();
  const std::size_t free = driver.free_memory();
  for (int life = 0; life < 20; ++life) {
    instance.activate(test_sizes);
    EXPECT_EQ(instance.metrics().memory_bytes, 4096u);
    instance.deactivate();
    EXPECT_EQ(instance.metrics().memory_bytes, 0u);
  }
  EXPECT_GE(driver.free_memory() + 4096 * 10, free) << "20 leaks of 4096 bytes came back";
  EXPECT_EQ(instance.metrics().strikes, 21u);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("forgot 4096 bytes")));
  driver.pop_all();
  driver.destroy_context(own);
}

TEST_F(BrokerTest, AllocationBeyondTheInstancesBudgetIsRefused) {
  EXPECT_TRUE(active("megabyte", LeaseKind::shared, 1 << 20).active());
  PluginInstance instance = create("megabyte", LeaseKind::shared, (1 << 20) - 1);
  EXPECT_THAT(error_text(ErrorKind::out_of_memory, [&] { instance.activate(test_sizes); }),
              AllOf(HasSubstr("1048576 bytes do not fit into the budget of 1048575"),
                    HasSubstr("CTXB_ERROR_OUT_OF_DEVICE_MEMORY")));
  EXPECT_EQ(instance.metrics().memory_bytes, 0u);
}

TEST_F(BrokerTest, ExceptionsStopAtTheBoundary) {
  PluginInstance instance = create("activate_throws");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { instance.activate(test_sizes); }),
              HasSubstr("threw an exception"));
  EXPECT_EQ(instance.metrics().strikes, 1u);
  EXPECT_THAT(said("strike"), ElementsAre(HasSubstr("thrown in activate")));
}

TEST_F(BrokerTest, FailedCreationIsAnErrorAndLeavesNothing) {
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { create("create_refuses"); }),
              HasSubstr("no licence today"));
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { create("create_throws"); }),
              HasSubstr("threw"));
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { create("create_crooked"); }),
              HasSubstr("null functions"));
  broker.close();  // nothing stayed
}

TEST_F(BrokerTest, AGarbageImageEndsWithTheJitLog) {
  PluginInstance instance = create("garbage");
  const std::string text =
      error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); });
  EXPECT_THAT(text, AllOf(HasSubstr("module \"garbage\""), HasSubstr("JIT log: ")));
  EXPECT_THAT(text, Not(HasSubstr("JIT log is empty")));
  EXPECT_FALSE(instance.active());
}

TEST_F(BrokerTest, APromisedKernelThatIsMissingIsNamed) {
  PluginInstance instance = create("promising");
  EXPECT_THAT(
      error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); }),
      AllOf(HasSubstr("promises"), HasSubstr("no kernel \"never_written\"; it has \"affine\";")));
}

}  // namespace
}  // namespace ctxbroker
