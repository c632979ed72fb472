// SPDX-License-Identifier: Apache-2.0
// Broker::poll on the main thread, and a tenant's end, beside work on other threads.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "broker_fixture.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/stream.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto long_enough = std::chrono::milliseconds(400);
constexpr auto too_long = std::chrono::seconds(30);

class PollTest : public BrokerTest {
 protected:
  void wait_until_held_up() {
    const auto is_held_up = [&] {
      const std::vector<std::string> texts = said("plugin");
      return std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
        return text.find("held up") != std::string::npos;
      });
    };
    const auto deadline = std::chrono::steady_clock::now() + too_long;
    while (!is_held_up() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(is_held_up());
  }
  // Runs a job on another thread, and loses the lease while the plug-in `rests` is held up in a
  // call of that job. Returns the job's error.
  std::string error_beside_a_loss(Graph& graph, const PluginInstance& rests) {
    void* const library = dlopen(test_plugin("behaviours").c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto& hold_up = *static_cast<std::atomic<bool>*>(dlsym(library, "behaviours_hold_up"));
    hold_up = true;
    std::string error;
    std::thread job([&] {
      float pixel[4] = {1, 2, 3, 4};
      error = error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); });
    });
    wait_until_held_up();
    EXPECT_TRUE(broker.force_loss(rests.lease().tenant, 0, "once more"));
    hold_up = false;
    job.join();
    dlclose(library);
    return error;
  }
};

// Does `work` on another thread, where `rests` is held up in a call.
class HeldUp {
 public:
  explicit HeldUp(std::function<void()> work)
      : library_(dlopen(test_plugin("behaviours").c_str(), RTLD_NOW | RTLD_NOLOAD)),
        hold_up_(*static_cast<std::atomic<bool>*>(dlsym(library_, "behaviours_hold_up"))) {
    hold_up_ = true;
    thread_ = std::thread(std::move(work));
  }
  ~HeldUp() {
    let_go();
    dlclose(library_);
  }
  void let_go() {
    hold_up_ = false;
    if (thread_.joinable()) thread_.join();
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

 private:
  void* library_;
  std::atomic<bool>& hold_up_;
  std::thread thread_;
};

// Runs `work` again and again on another thread until the object ends.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (!stop_) work();
        }) {}
  ~Meanwhile() {
    stop_ = true;
    thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

template <class Work>
void for_a_while(Work work) {
  const auto end = std::chrono::steady_clock::now() + long_enough;
  while (std::chrono::steady_clock::now() < end) work();
}

TEST_F(PollTest, PollCallsPluginsBackBesideRunningJobs) {
  PluginInstance instance = create("asks");
  for (int round = 0; round < 20; ++round) {
    instance.activate(test_sizes);
    {
      Graph graph(broker, {&instance}, test_sizes);
      float pixel[4] = {1, 2, 3, 4};
      std::atomic<bool> done{false};
      std::thread jobs([&] {
        for (int job = 0; job < 40; ++job) graph.process(pixel, pixel, {});
        done = true;
      });
      while (!done) broker.poll();
      jobs.join();
    }
    instance.deactivate();
    ASSERT_FALSE(instance.active()) << "round " << round;
  }
}

// scratch would write through a null address if it got a job between context_lost and activate.
TEST_F(PollTest, TellsOfLossesOnlyBetweenJobs) {
  PluginInstance first = active("scratch");
  PluginInstance second = broker.create(broker.load(test_plugin("behaviours_twin")), "scratch", {});
  second.activate(test_sizes);
  Graph graph(broker, {&first, &second}, test_sizes);
  const std::vector<float> input(std::size_t{64} * 64 * 4, 1);
  std::vector<float> output(input.size());
  std::atomic<int> jobs{0};
  {
    const Meanwhile process([&] {
      try {
        graph.process(input.data(), output.data(), {64, 64});
        ++jobs;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
      }
    });
    for_a_while([&] {
      for (const TenantId tenant : {first.lease().tenant, second.lease().tenant}) {
        const int before = jobs;
        broker.force_loss(tenant, 0, "a test");
        const auto deadline = std::chrono::steady_clock::now() + too_long;
        do {
          broker.poll();
        } while (jobs == before && std::chrono::steady_clock::now() < deadline);
        ASSERT_NE(jobs, before) << "no job gets through any more";
      }
    });
  }
  EXPECT_NO_THROW(graph.process(input.data(), output.data(), {64, 64}));
  EXPECT_EQ(output[1], input[1]);
}

TEST_F(PollTest, ALossDuringARenewalIsRenewedByTheNextJob) {
  PluginInstance instance = active("rests");
  Graph graph(broker, {&instance}, test_sizes);
  float pixel[4] = {1, 2, 3, 4};
  graph.process(pixel, pixel, {});
  broker.force_loss(instance.lease().tenant, 0, "a test");
  EXPECT_THAT(error_beside_a_loss(graph, instance), HasSubstr("rests")) << "it is being activated";
  EXPECT_NO_THROW(graph.process(pixel, pixel, {}));
  instance.deactivate();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { graph.process(pixel, pixel, {}); }),
              HasSubstr("was deactivated"));
}

// The second stage is refused while the work of the first is in flight.
TEST_F(PollTest, AJobThatMeetsALossWaitsForItsWork) {
  PluginInstance rests = active("rests"), asks = active("asks");
  Graph graph(broker, {&rests, &asks}, test_sizes);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_beside_a_loss(graph, rests), HasSubstr("asks"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
}

TEST_F(PollTest, ATenantAllocatesBesideLosses) {
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    Tenant tenant = broker.open_tenant(to_string(kind), {LeaseChoice(kind)});
    std::atomic<int> allocated{0};
    const Meanwhile allocate([&] {
      try {
        const DeviceMemory memory(tenant, 4096);
        const Stream stream(tenant);
        ++allocated;
      } catch (const Error& error) {
        ADD_FAILURE() << to_string(kind) << ": " << error.what();
      }
    });
    for_a_while([&] {
      const int before = allocated;
      broker.force_loss(tenant.id(), 0, "a test");
      broker.poll();
      // Making a private context takes a GPU a tenth of a second.
      const auto deadline = std::chrono::steady_clock::now() + too_long;
      while (kind == LeaseKind::private_own && allocated == before &&
             std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
    });
    const auto deadline = std::chrono::steady_clock::now() + too_long;
    while (allocated == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_GT(allocated, 0);
  }
}

// A look at the leases holds one for a moment. It must not keep the lease of a closed tenant.
TEST_F(PollTest, TenantClosesWhileAnotherThreadReadsTheLeases) {
  const Meanwhile look([&] { static_cast<void>(broker.leases()); });
  for_a_while([&] {
    Tenant host = broker.host();
    { const Guard guard(host); }
    host.close();
  });
  EXPECT_THAT(said("tenant"), IsEmpty());
  Tenant host = broker.host();
  EXPECT_EQ(host.lease().state, LeaseState::ready);
}

// The graph activates the plug-in again after a loss. All calls of other libraries, and those about
// all instances, waited for that.
TEST_F(PollTest, CallsAboutOtherLibrariesWaitForNoActivateThatDoesNotReturn) {
  PluginInstance rests = active("rests");
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  PluginInstance asks = broker.create(twin, "asks", {});
  asks.activate(test_sizes);
  Graph graph(broker, {&rests}, test_sizes);
  float pixel[4] = {1, 2, 3, 4};
  graph.process(pixel, pixel, {});
  const std::uint64_t before = rests.lease().generation;
  ASSERT_TRUE(broker.force_loss(rests.lease().tenant, 0, "a test"));
  std::atomic<bool> is_done{false};
  HeldUp held([&] {
    graph.process(pixel, pixel, {});
    is_done = true;
  });
  wait_until_held_up();
  std::vector<InstanceMetrics> instances;
  for (const TenantMetrics& tenant : broker.metrics().tenants) {
    instances.insert(instances.end(), tenant.instances.begin(), tenant.instances.end());
  }
  EXPECT_EQ(instances.size(), 2u);
  EXPECT_EQ(std::count_if(instances.begin(), instances.end(),
                          [&](const auto& one) { return one.generation > before; }),
            2)
      << "the other lease is younger, and the one that is lost has been renewed";
  asks.deactivate();
  asks.activate(test_sizes);
  run({&asks});
  broker.poll();
  EXPECT_THAT(said("plugin"), Contains(HasSubstr("called back")));
  EXPECT_EQ(asks.latency_frames(), 3u);
  { const PluginInstance one_more = broker.create(twin, "affine", {}); }
  EXPECT_FALSE(is_done) << "rests is held up, or this test shows nothing";
  held.let_go();
  EXPECT_TRUE(is_done);
}

// A library is called by one thread at a time.
TEST_F(PollTest, CallsAboutTheSameLibraryEndWithTheTimeout) {
  BrokerOptions hasty = options();
  hasty.end_timeout = std::chrono::milliseconds(300);
  Broker own = Broker::open(hasty);
  const auto count = [&] {
    std::size_t instances = 0;
    for (const TenantMetrics& tenant : own.metrics().tenants) instances += tenant.instances.size();
    return instances;
  };
  {
    const PluginLibrary library = own.load(test_plugin("behaviours"));
    PluginInstance rests = own.create(library, "rests", {});
    PluginInstance idle = own.create(library, "affine", {});
    std::optional<PluginInstance> second = own.create(library, "scratch", {});
    rests.activate(test_sizes);
    second->activate(test_sizes);
    Graph graph(own, {&rests}, test_sizes);
    float pixel[4] = {1, 2, 3, 4};
    graph.process(pixel, pixel, {});
    ASSERT_TRUE(own.force_loss(rests.lease().tenant, 0, "a test"));
    std::atomic<bool> is_done{false};
    HeldUp held([&] {
      graph.process(pixel, pixel, {});
      is_done = true;
    });
    wait_until_held_up();
    const auto names_it = AllOf(HasSubstr("activate of plug-in com.example.test.rests still runs"),
                                HasSubstr("300 ms"));
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { idle.activate(test_sizes); }), names_it);
    EXPECT_FALSE(idle.active());
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { static_cast<void>(idle.save_state()); }),
                names_it);
    EXPECT_THAT(error_text(ErrorKind::wrong_state,
                           [&] { static_cast<void>(own.create(library, "affine", {})); }),
                names_it);
    second->deactivate();
    EXPECT_TRUE(second->active());
    EXPECT_THAT(said("plugin"), Contains(AllOf(HasSubstr("stays active"), names_it)));
    own.poll();  // skips them
    EXPECT_TRUE(second->active());
    second.reset();
    EXPECT_THAT(said("plugin"), Contains(AllOf(HasSubstr("is not ended yet"), names_it)));
    EXPECT_EQ(count(), 3u);
    EXPECT_FALSE(is_done) << "rests is held up, or this test shows nothing";
    held.let_go();
    EXPECT_TRUE(is_done);
    own.poll();
    EXPECT_EQ(count(), 2u) << "the poll has ended it";
    EXPECT_NO_THROW(idle.activate(test_sizes));
  }
  EXPECT_NO_THROW(own.close());
}

// A close waits for the tenant's work, and the host polls once for each block of its own.
TEST_F(PollTest, NoPollWaitsForAnotherThreadsClose) {
  BrokerOptions patient = options();
  patient.end_timeout = too_long;
  Broker own = Broker::open(patient);
  TenantOptions with;
  with.on_loss = [](const LeaseLoss&) {};
  Tenant tenant = own.open_tenant("busy", with);
  static std::atomic<bool> release;
  release = false;
  CUstream const stream = tenant.create_stream();
  const RawDriver driver(own.driver().path);
  tenant.run(0, [&] {
    driver.check_call("cuLaunchHostFunc", stream, CUhostFn([](void*) {
                        while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      }),
                      static_cast<void*>(nullptr));
  });
  std::atomic<bool> is_closed{false};
  std::thread closer([&] {
    tenant.close();
    is_closed = true;
  });
  for (int block = 0; block < 200; ++block) {
    own.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(is_closed) << "the polls have waited for it";
  release = true;
  closer.join();
  EXPECT_TRUE(is_closed);
}

TEST_F(PollTest, TheHostCannotCloseItsTenantInACallbackWhileAThreadIsInside) {
  std::optional<Tenant> host;
  BrokerOptions wanted = options();
  wanted.host.on_loss = [&](const LeaseLoss&) {
    const Guard inside(*host);
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { host->close(); }),
                HasSubstr("while a thread is inside"));
  };
  Broker other = Broker::open(wanted);
  host.emplace(other.host());
  host->lease();
  other.force_loss(host->id(), 0, "a test");
  other.poll();
  EXPECT_EQ(host->lease().state, LeaseState::ready);
  host->close();
  host.reset();
}

// The broker would end under the functions that write the record.
TEST(RecordsCallback, BrokerIsNotClosedInIt) {
  std::optional<Broker> broker;
  std::string refusal;
  BrokerOptions options;
  options.records = [&](const Record&) {
    if (!broker || !refusal.empty()) return;
    refusal = "none";
    refusal = error_text(ErrorKind::wrong_state, [&] { broker->close(); });
  };
  broker = Broker::open(options);
  broker->open_tenant("any").lease();
  EXPECT_THAT(refusal, HasSubstr("inside its records callback"));
  broker->close();
}

}  // namespace
}  // namespace ctxbroker
