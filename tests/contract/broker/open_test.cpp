// SPDX-License-Identifier: Apache-2.0
// Opening and closing a broker, and the choice of the driver.
#include <gmock/gmock.h>

#include <cstdlib>

#include "broker_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(BrokerTest, BrokerReportsDriverDevicesAndReason) {
  EXPECT_TRUE(broker.has_driver());
  EXPECT_NE(broker.driver().kind, DriverChoice::automatic);
  EXPECT_GE(broker.driver().version, 12040);
  EXPECT_FALSE(broker.driver().path.empty());
  EXPECT_FALSE(broker.driver().reason.empty());
  ASSERT_FALSE(broker.devices().empty());
  const DeviceInfo& device = broker.devices()[0];
  EXPECT_FALSE(device.name.empty());
  EXPECT_GE(device.compute_major, 7);
  EXPECT_GT(device.memory_bytes, 1u << 20);
  EXPECT_GT(device.multiprocessors, 0);
  EXPECT_EQ(said("driver").size(), 1u);
}

TEST_F(BrokerTest, SecondBrokerOpensAndClosesBesideTheFirst) {
  {
    Broker second = Broker::open();
    EXPECT_EQ(second.driver().path, broker.driver().path);
    second.close();
    EXPECT_FALSE(second.has_driver());
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return second.devices(); }),
                HasSubstr("closed"));
  }
  EXPECT_FALSE(broker.devices().empty());
}

TEST_F(BrokerTest, CloseRefusesWhileSomethingIsAlive) {
  {
    PluginInstance instance = create("affine");
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { broker.close(); }),
                AllOf(HasSubstr("1 plug-in instance"), HasSubstr("1 plug-in library")));
    instance.activate(test_sizes);
    const Graph graph(broker, {&instance}, test_sizes);
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { broker.close(); }), HasSubstr("1 graph"));
  }
  broker.close();
}

TEST_F(BrokerTest, BrokerDestroyedBeforeItsInstancesReportsThemAndTheyWork) {
  auto early = std::make_unique<Broker>(Broker::open(options()));
  const PluginLibrary library = early->load(test_plugin("behaviours"));
  PluginInstance instance = early->create(library, "affine");
  early.reset();
  EXPECT_THAT(said("broker"), testing::ElementsAre(HasSubstr("1 plug-in instance")));
  instance.activate(test_sizes);
  EXPECT_TRUE(instance.active());
}

TEST_F(BrokerTest, MovedBrokerKeepsItsInstances) {
  PluginInstance instance = active("affine");
  Broker moved = std::move(broker);
  EXPECT_TRUE(moved.has_driver());
  EXPECT_EQ(instance.lease().device, 0);
  broker = std::move(moved);
  EXPECT_EQ(run({&instance}).size(), 8u * 4 * 4);
}

TEST(WithoutDriverTest, BrokerWithoutDriverDescribesAndRefusesToCreate) {
  Broker broker = Broker::open_without_driver();
  EXPECT_FALSE(broker.has_driver());
  const PluginLibrary library = broker.load(test_plugin("behaviours"));
  EXPECT_FALSE(library.plugins().empty());
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return broker.create(library, "affine"); }),
              HasSubstr("without a driver"));
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return broker.driver(); }),
              HasSubstr("without a driver"));
}

// In children: what is said about a device that an MPS server shares.
TEST_F(BrokerTest, DISABLED_PrintsWhatIsSaidOfMps) {
  const PluginInstance instance = create("affine");
  std::printf("client %d, %zu records, %s\n", broker.devices()[0].mps ? 1 : 0, said("mps").size(),
              instance.lease().reason.c_str());
}

TEST(MpsTest, HostUnderMpsIsWarnedOfLostIsolation) {
  Environment environment{{"CTXBROKER_DRIVER", "software"},
                          {"CTXBROKER_SOFTWARE_MPS", "/run/own"},
                          {"CUDA_MPS_PIPE_DIRECTORY", "/run/own"}};
  const auto said = [&] {
    const ChildResult child = run_child("BrokerTest.DISABLED_PrintsWhatIsSaidOfMps", environment);
    EXPECT_EQ(child.exit_code, 0) << child.output;
    return child.output;
  };
  EXPECT_THAT(said(), AllOf(HasSubstr("client 1, 1 records"),
                            HasSubstr("; under MPS, so a fault of any client of the MPS server")));
  environment[2].second = "/dev/null";
  EXPECT_THAT(said(), AllOf(HasSubstr("client 0, 0 records"), Not(HasSubstr("MPS,"))));
}

// ---- Options that cannot be meant -----------------------------------------------------------

TEST_F(BrokerTest, UnknownEnumeratorsInOptionsAreRefused) {
  BrokerOptions wrong = options();
  wrong.driver = static_cast<DriverChoice>(77);
  EXPECT_THAT(error_text(ErrorKind::driver_choice, [&] { return Broker::open(wrong); }),
              AllOf(HasSubstr("BrokerOptions::driver"), HasSubstr("77")));
  wrong = options();
  wrong.policy.by_id["x"].lease = LeaseChoice(static_cast<LeaseKind>(99));
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return Broker::open(wrong); }),
              AllOf(HasSubstr("policy"), HasSubstr("99")));
  wrong = options();
  wrong.policy.for_all.memory = static_cast<MemorySource>(99);
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return Broker::open(wrong); }),
              AllOf(HasSubstr("policy"), HasSubstr("memory is 99")));

  TenantOptions tenant;
  tenant.lease = LeaseChoice(static_cast<LeaseKind>(99));
  EXPECT_THAT(
      error_text(ErrorKind::invalid_argument, [&] { return broker.open_tenant("x", tenant); }),
      HasSubstr("TenantOptions::lease"));
  tenant.lease = {};
  tenant.memory = static_cast<MemorySource>(99);
  EXPECT_THAT(
      error_text(ErrorKind::invalid_argument, [&] { return broker.open_tenant("x", tenant); }),
      HasSubstr("TenantOptions::memory is 99"));

  const PluginLibrary library = broker.load(test_plugin("behaviours"));
  InstanceOptions instance;
  instance.device = Placement(static_cast<PlacementRule>(99));
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { return broker.create(library, "affine", instance); }),
              HasSubstr("InstanceOptions::device"));
}

TEST_F(BrokerTest, PatternOfAPolicyThatCannotBeMeantIsRefused) {
  const struct {
    LibraryPattern pattern;
    const char *member, *why;
  } rows[] = {{{"", "blur"}, "libraries[1].match", "is no pattern"},
              {{"libblur.so", "blur"}, "libraries[1].match", "write \"*/libblur.so\""},
              {{"*", ""}, "libraries[1].tenant", "is no tenant's name"},
              {{"*", "bad name\n"}, "libraries[1].tenant", "is no tenant's name"},
              {{"*", "host"}, "libraries[1].tenant", "belongs to no tenant"}};
  BrokerOptions governed = options();
  governed.policy.libraries = {{"*/no_such_library.so", "com.example.blur"}};
  EXPECT_NO_THROW(static_cast<void>(Broker::open(governed))) << "a control";
  for (const auto& row : rows) {
    SCOPED_TRACE(row.why);
    BrokerOptions wrong = governed;
    wrong.policy.libraries.push_back(row.pattern);
    EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return Broker::open(wrong); }),
                AllOf(HasSubstr(row.member), HasSubstr(row.why)));
  }
}

TEST_F(BrokerTest, NegativeTimeoutInOptionsIsRefused) {
  BrokerOptions wrong = options();
  wrong.end_timeout = std::chrono::milliseconds(-1);
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return Broker::open(wrong); }),
              AllOf(HasSubstr("end_timeout"), HasSubstr("-1 ms")));
  wrong = options();
  wrong.job_timeout = std::chrono::milliseconds::min();
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return Broker::open(wrong); }),
              HasSubstr("job_timeout"));
}

// In nanoseconds, this time does not fit into 64 bits.
TEST_F(BrokerTest, TheLongestTimeIsALimitThatHealthyWorkKeeps) {
  BrokerOptions patient = options();
  patient.job_timeout = patient.end_timeout = std::chrono::milliseconds::max();
  Broker other = Broker::open(patient);
  const PluginLibrary library = other.load(test_plugin("behaviours"));
  PluginInstance instance = other.create(library, "affine");
  instance.activate(test_sizes);
  std::vector<float> image(std::size_t{4} * 8 * 4, 1);
  {
    Graph graph(other, {&instance}, test_sizes);
    EXPECT_NO_THROW(graph.process(image.data(), image.data(), {8, 4, 0}));
  }
  EXPECT_NO_THROW(instance.deactivate());
  EXPECT_EQ(other.leases().at(0).state, LeaseState::ready);
}

// ---- In children: another environment, another process's CUDA -------------------------------

TEST(DriverChildTest, DISABLED_PrintsHowABrokerOpens) {
  try {
    Broker broker = Broker::open();
    std::printf("opened %s\n", to_string(broker.driver().kind));
  } catch (const Error& error) {
    std::printf("kind %s: %s\n", to_string(error.kind()), error.what());
  }
}

std::string opened_with(const Environment& environment) {
  const ChildResult child =
      run_child("DriverChildTest.DISABLED_PrintsHowABrokerOpens", environment);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  return child.output;
}

TEST(DriverTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(opened_with({{"CTXBROKER_DRIVER", "magic"}}),
              AllOf(HasSubstr("kind driver-choice"), HasSubstr("\"magic\""),
                    HasSubstr("auto, nvidia or software")));
}

TEST(DriverTest, TheSoftwareDeviceIsFoundBesideTheLibrary) {
  EXPECT_THAT(opened_with({{"CTXBROKER_DRIVER", "software"}}), HasSubstr("opened software"));
}

TEST(DriverTest, OpenWithoutAnyDeviceIsAnError) {
  EXPECT_THAT(opened_with({{"CTXBROKER_DRIVER", "software"}, {"CTXBROKER_SOFTWARE_DEVICES", "0"}}),
              AllOf(HasSubstr("kind no-device"), HasSubstr("CTXBROKER_SOFTWARE_DEVICES")));
}

}  // namespace
}  // namespace ctxbroker
