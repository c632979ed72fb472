// SPDX-License-Identifier: Apache-2.0
// Launches of plug-ins: both argument forms, attributes, and the limits that are named when one is
// broken.
#include <cuda.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "broker_fixture.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class BrokerLaunchTest : public BrokerTest {
 protected:
  bool software() const { return broker.driver().kind == DriverChoice::software; }
  bool has_clusters() const { return broker.devices()[0].compute_major >= 9; }

  // Checks that the plug-in computes the same as `affine`, with one launch and no strikes.
  void expect_affine(const std::string& behaviour) {
    PluginInstance instance = active(behaviour), plain = active("affine");
    instance.set_parameter("factor", 3);
    plain.set_parameter("factor", 3);
    EXPECT_EQ(run({&instance}, 37, 5), run({&plain}, 37, 5)) << behaviour;
    EXPECT_EQ(instance.metrics().strikes, 0u);
    EXPECT_EQ(instance.metrics().launches, 1u);
  }

  std::string refusal(const std::string& behaviour) {
    PluginInstance instance = active(behaviour);
    std::string text = error_text(ErrorKind::plugin_failed, [&] { run({&instance}); });
    EXPECT_THAT(text, HasSubstr("kernel \"affine\": ")) << behaviour;
    return text;
  }
};

TEST_F(BrokerLaunchTest, PackedArgumentsLaunchLikePointers) {
  expect_affine("packed");
}

TEST_F(BrokerLaunchTest, APackedFormThatIsNotTheKernelsIsRefused) {
  EXPECT_THAT(refusal("packed_too_short"),
              HasSubstr("24 bytes of packed arguments; the kernel takes 28"));
  EXPECT_THAT(refusal("packed_shifted"),
              HasSubstr("argument 4 (of 5), 4 bytes, is at offset 24 of the packed arguments; the "
                        "kernel takes it at 20"));
}

TEST_F(BrokerLaunchTest, LaunchWithWishesSucceedsOnEveryDevice) {
  expect_affine("wishes");
}

TEST_F(BrokerLaunchTest, UnknownLaunchFlagsAreRefused) {
  EXPECT_THAT(refusal("unknown_flag"), HasSubstr("flags 0x40000000 are not known"));
}

TEST_F(BrokerLaunchTest, ClusterLaunchNeedsADeviceWithClusters) {
  if (has_clusters()) return expect_affine("clusters");
  EXPECT_THAT(refusal("clusters"),
              AllOf(HasSubstr("a cluster of 2 x 1 x 1 blocks"),
                    HasSubstr("need compute capability 9.0"), HasSubstr("UNSUPPORTED")));
}

TEST_F(BrokerLaunchTest, CooperativeLaunchRunsUnlessItHasTooManyBlocks) {
  expect_affine("cooperative");
  EXPECT_THAT(refusal("too_many_together"),
              AllOf(HasSubstr("a cooperative launch of 1048576 blocks; at most "),
                    HasSubstr("multiprocessors")));
}

TEST_F(BrokerLaunchTest, SharedMemoryAbove48KiBIsAskedForByTheHost) {
  expect_affine("much_shared");
  EXPECT_THAT(refusal("absurd_shared"), AllOf(HasSubstr("1073741824 bytes of dynamic and "),
                                              HasSubstr(" of static shared memory; at most ")));
}

TEST_F(BrokerLaunchTest, LaunchThatTheDriverRefusesIsReportedAndNotCounted) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device fails calls when it is told to";
  PluginInstance instance = active("affine");
  ASSERT_EQ(controls.fail_call("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), 0);
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&instance}); }),
              AllOf(HasSubstr("launch of kernel \"affine\": "),
                    HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")));
  controls.stop_counting();
  EXPECT_EQ(instance.metrics().launches, 0u);
  EXPECT_EQ(instance.metrics().strikes, 0u);
  run({&instance});
  EXPECT_EQ(instance.metrics().launches, 1u);
}

// The driver's error, not what entering a context that is gone says.
TEST_F(BrokerLaunchTest, ALaunchThatFindsItsContextGoneEndsTheLease) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device fails calls when it is told to";
  PluginInstance instance = active("affine", LeaseKind::private_own);
  ASSERT_EQ(controls.fail_call("cuLaunchKernel", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
  EXPECT_THROW(run({&instance}), Error);
  controls.stop_counting();
  EXPECT_EQ(instance.lease().state, LeaseState::lost);
  EXPECT_EQ(run({&instance})[3], 3.0F) << "in a new life";
}

TEST_F(BrokerLaunchTest, KernelDescribesArgumentsAndLimits) {
  PluginInstance instance = active("describes");
  EXPECT_THAT(said("plugin"),
              Contains(AllOf(HasSubstr("affine: 5 arguments in 28 bytes, the third 4 bytes at 16"),
                             HasSubstr("block up to 1024; best 256; full 1; shared counts 1; "
                                       "registers 1; version 1"))));
}

TEST_F(BrokerLaunchTest, AnArgumentThatIsNotThereIsRefused) {
  PluginInstance instance = create("sixth_argument");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { instance.activate(test_sizes); }),
              HasSubstr("kernel \"affine\" takes 5 arguments; there is no 5"));
}

TEST_F(BrokerLaunchTest, StructsOfOtherVersionsAreFilledAsFarAsTheyGo) {
  PluginInstance instance = active("other_sizes");
  EXPECT_TRUE(instance.active());
}

// Such a plug-in's own calls and its launches go to the same stream.
TEST_F(BrokerLaunchTest, APluginThatCallsCudaItselfMayHaveKernels) {
  const PluginLibrary library = broker.load(test_plugin("both"));
  for (const char* name : {"with_driver", "with_runtime"}) {
    SCOPED_TRACE(name);
    PluginInstance instance = broker.create(library, name);
    instance.activate(test_sizes);
    const std::vector<float> samples = run({&instance});
    ASSERT_EQ(samples.size(), 8u * 4 * 4);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      ASSERT_EQ(samples[i], i == 1 ? 0 : 2 * static_cast<float>(i)) << i;
    }
    EXPECT_EQ(instance.metrics().launches, 1u);
  }
}

// float4, double, pointers, char and short, one by one and in a struct, as pointers and packed.
class TypedLaunchTest : public BrokerLaunchTest {
 protected:
  PluginInstance typed = broker.create(broker.load(test_plugin("typed")), "typed");

  std::vector<float> run_form(double form) {
    typed.deactivate();
    typed.set_parameter("form", form);
    typed.activate(test_sizes);
    return run({&typed}, 13, 7);
  }
};

TEST_F(TypedLaunchTest, EveryFormOfTheArgumentsIsTheSame) {
  const std::vector<float> pointers = run_form(0);
  ASSERT_EQ(pointers.size(), 13u * 7 * 4);
  const float colour[] = {0.5F, 1, 2, 4};
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    ASSERT_EQ(pointers[i], static_cast<float>(i) * 1.5F + colour[i % 4] + 'a' - 7) << i;
  }
  EXPECT_EQ(run_form(1), pointers) << "packed";
  EXPECT_EQ(run_form(2), pointers) << "a struct";
  EXPECT_EQ(run_form(3), pointers) << "a packed struct";
  EXPECT_EQ(run_form(4), pointers) << "kernel.launch";
}

// Instances of one lease may have the same function, whose limit is then for all of them.
TEST_F(TypedLaunchTest, OneInstancesSharedMemoryIsNotAnothersLimit) {
  PluginInstance other = broker.create(broker.load(test_plugin("typed")), "typed");
  typed.activate(test_sizes);
  other.activate(test_sizes);
  typed.set_parameter("shared", 60000);
  other.set_parameter("shared", 50000);
  const std::vector<float> output = run({&typed}, 13, 7);
  EXPECT_EQ(run({&other}, 13, 7), output);
  EXPECT_EQ(run({&typed}, 13, 7), output);
}

TEST_F(TypedLaunchTest, AWrongArgumentIsNamed) {
  const auto refusal_of = [&](double form) {
    return error_text(ErrorKind::plugin_failed, [&] { run_form(form); });
  };
  EXPECT_THAT(refusal_of(5), AllOf(HasSubstr("launching the kernel 'spread'"),
                                   HasSubstr("argument 2 (of 7) has 4 bytes; the kernel takes 8 "
                                             "there, at offset 8")));
  EXPECT_THAT(refusal_of(6), HasSubstr("takes 7 arguments; the launch gives 6"));
  EXPECT_THAT(refusal_of(7), HasSubstr("argument 2 (of 7), 8 bytes, is at offset 1 of the packed "
                                       "arguments; the kernel takes it at 8"));
  EXPECT_THAT(refusal_of(8), HasSubstr("argument 5 (of 7) has 4 bytes; the kernel takes 2"));
}

// tests/gpu_tools/foreign_images.py makes one and sets the variables. Its kernel doubles and
// adds 1.
TEST_F(BrokerLaunchTest, ImageOfAnotherLanguageRuns) {
  if (std::getenv("CTXB_FOREIGN_IMAGE") == nullptr) {
    GTEST_SKIP() << "CTXB_FOREIGN_IMAGE names no image; foreign_images.py makes some";
  }
  PluginInstance instance = broker.create(broker.load(test_plugin("foreign")), "foreign");
  instance.activate(test_sizes);
  const std::vector<float> output = run({&instance}, 37, 5);
  for (std::size_t i = 0; i < output.size(); ++i) {
    ASSERT_EQ(output[i], static_cast<float>(i) * 2 + 1) << i;
  }
}

// Each with and without a graph, in each kind of lease.
TEST_F(BrokerLaunchTest, ClustersGridSynchronisationAndDependentLaunchesCompute) {
  if (!has_clusters()) {
    EXPECT_THAT(
        error_text(ErrorKind::kernel_image,
                   [&] { return broker.create(broker.load(test_plugin("hopper")), "hopper"); }),
        HasSubstr("needs compute capability 9.0"));
    GTEST_SKIP() << "needs a device of compute capability 9.0";
  }
  std::vector<float> expected[4];
  for (unsigned i = 0; i < 64 * 64 * 4; ++i) {
    const unsigned block = i / 128;
    const auto next_in = [&](unsigned size) {
      const unsigned first = block / size * size;
      const unsigned next = first + (block + 1 - first) % size;
      return static_cast<float>(next * 128 + i % 128);
    };
    expected[0].push_back(next_in(4));
    expected[1].push_back(next_in(16));
    expected[2].push_back(static_cast<float>(i) + 32);
    expected[3].push_back(static_cast<float>(i) * 2 + 1);
  }
  for (const LeaseKind lease : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    for (const bool graphs : {false, true}) {
      InstanceOptions options;
      options.lease = LeaseChoice(lease);
      options.job_graphs = graphs;
      PluginInstance instance =
          broker.create(broker.load(test_plugin("hopper")), "hopper", options);
      instance.activate(test_sizes);
      for (unsigned kind = 0; kind < 4; ++kind) {
        instance.set_parameter("kind", kind);
        EXPECT_EQ(run({&instance}, 64, 64), expected[kind])
            << "kind " << kind << ", " << to_string(lease) << (graphs ? ", as a graph" : "");
      }
      EXPECT_EQ(instance.metrics().graph_jobs, graphs ? 4u : 0u) << to_string(lease);
    }
  }
}

}  // namespace
}  // namespace ctxbroker
