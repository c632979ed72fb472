// SPDX-License-Identifier: Apache-2.0
// Work on the device that does not end in its time: nobody waits for it, and the others go on. In a
// child, whose end may wait for the kernel.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

// The kernel works for four seconds; what is over by then has not waited for it. A sound job gets a
// tenth of that, because the machine may be busy with something else.
constexpr std::chrono::milliseconds kernel_takes{4000};
constexpr std::chrono::milliseconds patience = kernel_takes / 10;

class HungChildTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  HungChildTest() {
    BrokerOptions impatient = options();
    impatient.job_timeout = impatient.end_timeout = patience;
    broker = Broker::open(std::move(impatient));
  }
  PluginInstance twin(LeaseKind kind) {
    PluginInstance instance = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                            {Placement(0), LeaseChoice(kind), 0});
    instance.activate(test_sizes);
    return instance;
  }
  float pixel[4] = {0, 1, 2, 3};
};

TEST_P(HungChildTest, DISABLED_NobodyWaitsForAHungJob) {
  PluginInstance good = twin(LeaseKind::private_own);
  Graph good_graph(broker, {&good}, test_sizes);
  good_graph.process(pixel, pixel, {});  // what is loaded lazily is loaded
  {
    PluginInstance lingering = active("lingers", GetParam());
    Graph graph(broker, {&lingering}, test_sizes);
    const Clock::time_point begin = Clock::now();
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); }),
                AllOf(HasSubstr("lingers"), HasSubstr("did not end within 400 ms")));
    EXPECT_EQ(lingering.lease().state, LeaseState::hung);
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); }),
                HasSubstr("hung"));
    good_graph.process(pixel, pixel, {});
    EXPECT_EQ(good.lease().state, LeaseState::ready);
    lingering.deactivate();
    EXPECT_THAT(said("plugin"), Contains(HasSubstr("context lost, guilty, reason 4")));
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { active("affine", GetParam()); }),
                HasSubstr("hung"))
        << "the tenant is not entered again";
    EXPECT_LT(Clock::now() - begin, kernel_takes);
  }
}

TEST_P(HungChildTest, DISABLED_DeactivateDoesNotWaitForWorkBehindAHungJob) {
  const Clock::time_point begin = Clock::now();
  {
    PluginInstance lingering = active("lingers", GetParam());
    PluginInstance behind = twin(GetParam());
    Graph graph(broker, {&lingering, &behind}, test_sizes);
    error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    EXPECT_EQ(lingering.lease().state, LeaseState::hung);
    EXPECT_EQ(behind.lease().state, LeaseState::lost)
        << "it waits for the hung one, and is innocent";
    behind.deactivate();
    EXPECT_LT(Clock::now() - begin, kernel_takes);
    // The driver makes no context and loads no module before the kernels that run have ended.
    if (GetParam() != LeaseKind::private_own) {
      EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { behind.activate(test_sizes); }),
                  HasSubstr("work of tenant behaviours hangs on device 0"));
      EXPECT_LT(Clock::now() - begin, kernel_takes);
    }
    const Clock::time_point latest = Clock::now() + 5 * kernel_takes;
    for (bool is_active = false; !is_active;) {
      try {
        behind.activate(test_sizes);
        is_active = true;
      } catch (const Error& error) {
        if (Clock::now() > latest) throw;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    Graph alone(broker, {&behind}, test_sizes);
    alone.process(pixel, pixel, {});
  }
}

// The second node copies from memory of the first one, when that has ended at last.
TEST_P(HungChildTest, DISABLED_MemoryWaitsForHungWorkInOtherContexts) {
  const LeaseKind other =
      GetParam() == LeaseKind::private_own ? LeaseKind::shared : LeaseKind::private_own;
  {
    PluginInstance slow = active("lingers", GetParam()), behind = twin(other);
    Graph graph(broker, {&slow, &behind}, test_sizes);
    error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    EXPECT_EQ(slow.lease().state, LeaseState::hung);
  }
  // Contexts that take turns on a device need longer than the kernel.
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while (!broker.metrics().put_off.empty() && Clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(broker.metrics().put_off.empty()) << "the hung work ended long ago";
  EXPECT_THAT(said("fault"), ::testing::IsEmpty());
  PluginInstance next = twin(other);
  Graph(broker, {&next}, test_sizes).process(pixel, pixel, {});
}

// Guilty is whose work alone was in flight. The stage before has ended by then, and the idle
// instance in the same lease has enqueued nothing.
TEST_P(HungChildTest, DISABLED_OnlyAnInstanceWhoseWorkWasAloneIsCalledGuilty) {
  PluginInstance before = twin(GetParam());
  PluginInstance lingering = active("lingers", GetParam()), idle = active("affine", GetParam());
  Graph graph(broker, {&before, &lingering}, test_sizes);
  error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
  for (PluginInstance* const one : {&lingering, &idle}) {
    EXPECT_EQ(one->lease().state, LeaseState::hung);
    one->deactivate();
  }
  EXPECT_THAT(said("plugin"), AllOf(Contains(HasSubstr("context lost, guilty, reason 4")),
                                    Contains(HasSubstr("context lost, innocent, reason 4"))));
}

TEST_P(HungChildTest, DISABLED_NobodyIsCalledGuiltyBesideOtherTenants) {
  Tenant tenant = broker.open_tenant("another");
  { const Guard guard(tenant); }
  PluginInstance lingering = active("lingers", GetParam());
  Graph graph(broker, {&lingering}, test_sizes);
  error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
  lingering.deactivate();
  EXPECT_THAT(said("plugin"), AllOf(Contains(HasSubstr("context lost, unknown, reason 4")),
                                    Not(Contains(HasSubstr("guilty")))));
}

// It is in force, with what it holds, when nobody has it any more.
TEST_P(HungChildTest, DISABLED_HungLeaseStaysWhenItsPluginsHaveGone) {
  TenantId tenant{};
  std::uint64_t held = 0;
  const auto row = [&] {
    std::vector<LeaseMetrics> found;
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.id == tenant) found = one.leases;
    }
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? LeaseMetrics{} : found.front();
  };
  {
    PluginInstance lingering = active("lingers", GetParam()), scratch = active("scratch");
    Graph graph(broker, {&scratch, &lingering}, test_sizes);
    error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    tenant = lingering.lease().tenant;
    held = row().memory_bytes;
    EXPECT_GT(held, 0U);
  }
  EXPECT_EQ(row().state, LeaseState::hung);
  EXPECT_EQ(row().memory_bytes, held) << "nothing of it was given back";
  const std::vector<LeaseInfo> leases = broker.leases();
  EXPECT_TRUE(std::any_of(leases.begin(), leases.end(), [&](const LeaseInfo& one) {
    return one.tenant == tenant && one.state == LeaseState::hung;
  }));
  EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { active("affine", GetParam()); }),
              HasSubstr("hung"));
}

// Enqueued work may still call functions of the library.
TEST_P(HungChildTest, DISABLED_LibraryOfAHungLeaseStaysLoaded) {
  const std::filesystem::path library = test_plugin("behaviours_unloadable");
  const auto begin = [&](const char* plugin) {
    PluginInstance instance =
        broker.create(broker.load(library), plugin, {Placement(0), LeaseChoice(GetParam()), 0});
    instance.activate(test_sizes);
    return instance;
  };
  {
    PluginInstance ends = begin("affine");
    Graph(broker, {&ends}, test_sizes).process(pixel, pixel, {});
    EXPECT_TRUE(is_mapped(library));
  }
  EXPECT_FALSE(is_mapped(library)) << "it says that it may go";
  {
    PluginInstance lingering = begin("lingers");
    Graph graph(broker, {&lingering}, test_sizes);
    error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    EXPECT_EQ(lingering.lease().state, LeaseState::hung);
  }
  EXPECT_TRUE(is_mapped(library));
}

// Brokers of several libraries in one process share the devices. One of these has used the device
// before the work, and one has not.
TEST_P(HungChildTest, DISABLED_WorkOfAnotherBrokersTenantIsNamed) {
  BrokerOptions impatient = options();
  impatient.end_timeout = patience;
  Broker before = Broker::open(impatient), after = Broker::open(impatient);
  before.open_tenant("early", {LeaseChoice(LeaseKind::shared)}).run(0, [] {});
  {
    PluginInstance lingering = active("lingers", GetParam());
    Graph graph(broker, {&lingering}, test_sizes);
    const Clock::time_point begin = Clock::now();
    error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    for (Broker* const other : {&before, &after}) {
      Tenant green = other->open_tenant("green", {LeaseChoice(LeaseKind::green)});
      if (GetParam() == LeaseKind::private_own) {
        green.run(0, [] {});
      } else {
        EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { green.run(0, [] {}); }),
                    HasSubstr("work of tenant behaviours has not ended within 400 ms on device 0"));
      }
      Tenant own = other->open_tenant("own", {LeaseChoice(LeaseKind::private_own)});
      own.run(0, [] {});
      Tenant innocent = other->open_tenant("innocent");
      innocent.run(0, [] {});
      if (GetParam() != LeaseKind::private_own) {
        EXPECT_EQ(innocent.lease().granted.kind, LeaseKind::private_own);
      }
    }
    EXPECT_LT(Clock::now() - begin, kernel_takes) << "nobody waits for the work";
    EXPECT_EQ(after.shield(0).up, GetParam() == LeaseKind::private_own);
  }
  const Clock::time_point latest = Clock::now() + 5 * kernel_takes;
  while (!after.shield(0).up && Clock::now() < latest) {
    try {
      after.use_device(0);
    } catch (const Error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  EXPECT_TRUE(after.shield(0).up) << "it is raised when the work has ended";
}

// A call of the plug-in's own code holds its thread; neither other threads nor the process's end
// wait for it.
TEST_P(HungChildTest, DISABLED_ACallThatNeverReturnsHoldsNobodyUp) {
  // Left to the process's end, as the thread is.
  auto* const stuck = new PluginInstance(active("never_returns", GetParam()));
  auto* const graph = new Graph(broker, {stuck}, test_sizes);
  static std::atomic<bool> returned{false};
  std::thread([this, graph] {
    float own[4] = {};
    try {
      graph->process(own, own, {});
    } catch (const Error&) {
    }
    returned = true;
  }).detach();
  const auto is_inside = [&] {
    const std::vector<std::string> texts = said("plugin");
    return std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
      return text.find("here for ever") != std::string::npos;
    });
  };
  while (!is_inside()) std::this_thread::yield();
  // New instances of the same library and of another one work in leases of the same kind.
  for (int round = 0; round < 3; ++round) {
    PluginInstance sibling = active("affine", GetParam()), neighbour = twin(GetParam());
    Graph both(broker, {&sibling, &neighbour}, test_sizes);
    for (int job = 0; job < 10; ++job) both.process(pixel, pixel, {});
    EXPECT_EQ(sibling.lease().state, LeaseState::ready);
    EXPECT_EQ(neighbour.metrics().jobs, 10U);
  }
  EXPECT_FALSE(returned);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HungChildTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

using Child = std::tuple<const char*, const char*>;
class HungTest : public ::testing::TestWithParam<Child> {};

TEST_P(HungTest, ChildTestPasses) {
  const auto& [test, kind] = GetParam();
  const ChildResult child = run_child(
      std::string("Kinds/HungChildTest.DISABLED_") + test + "/" + kind,
      {{"LSAN_OPTIONS", "detect_leaks=0"},
       {"CTXB_TEST_LINGERS_NS", std::to_string(std::chrono::nanoseconds(kernel_takes).count())}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, HungTest,
    ::testing::Combine(::testing::Values("NobodyWaitsForAHungJob",
                                         "DeactivateDoesNotWaitForWorkBehindAHungJob",
                                         "MemoryWaitsForHungWorkInOtherContexts",
                                         "OnlyAnInstanceWhoseWorkWasAloneIsCalledGuilty",
                                         "NobodyIsCalledGuiltyBesideOtherTenants",
                                         "HungLeaseStaysWhenItsPluginsHaveGone",
                                         "LibraryOfAHungLeaseStaysLoaded",
                                         "WorkOfAnotherBrokersTenantIsNamed",
                                         "ACallThatNeverReturnsHoldsNobodyUp"),
                       ::testing::Values("shared", "private", "green")),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
    });

// Threads stay inside a lease until the next one has been refused.
TEST_F(BrokerTest, AThreadThatFindsNoWayIntoALeaseIsToldInTimeWhoIsInside) {
  BrokerOptions impatient = options();
  impatient.end_timeout = patience;
  Broker other = Broker::open(impatient);
  Tenant crowded = other.open_tenant("crowded", {LeaseChoice(LeaseKind::green)});
  if (crowded.lease().granted.kind != LeaseKind::green) {
    GTEST_SKIP() << "the driver offers no green contexts";
  }
  constexpr int most = 1024;
  std::counting_semaphore<most> entered(0);
  std::atomic<bool> over{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < most; ++i) {
    threads.emplace_back([&] {
      const Guard guard(crowded);
      entered.release();
      over.wait(false);
    });
    entered.acquire();
  }
  const Clock::time_point begin = Clock::now();
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { const Guard late(crowded); }),
              AllOf(HasSubstr("1024 threads are inside the lease of crowded on device 0"),
                    HasSubstr("no more fit in; none has left within 400 ms")));
  EXPECT_GE(Clock::now() - begin, patience);
  EXPECT_LT(Clock::now() - begin, 20 * patience);
  EXPECT_THAT(said("lease"), Contains(HasSubstr("1024 threads are inside the lease of crowded")));
  EXPECT_EQ(crowded.lease().state, LeaseState::ready);
  EXPECT_EQ(crowded.strikes(), 0U);
  over = true;
  over.notify_all();
  threads.clear();
  { const Guard again(crowded); }
  crowded.close();
}

}  // namespace
}  // namespace ctxbroker
