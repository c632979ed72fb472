// SPDX-License-Identifier: Apache-2.0
// Calls that may run at once do: each operation of a table beside each other one, while leases are
// lost, idle modules are unloaded, and the main thread polls, counts and records timelines.
// docs/embedding.md says which calls may. CTXB_PAIR_MS sets how long each pair runs. With
// CTXB_PAIR_WITH=job, only pairs run whose second operation is that one. How many calls each pair
// made stands in the file of --gtest_output.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/stream.hpp"

namespace ctxbroker {
namespace {

constexpr JobInfo picture{16, 16};

std::chrono::milliseconds pair_time() {
  const char* text = std::getenv("CTXB_PAIR_MS");
  return std::chrono::milliseconds(text == nullptr ? 5 : std::strtol(text, nullptr, 10));
}

bool is_left_out(const std::string& second) {
  const char* const wanted = std::getenv("CTXB_PAIR_WITH");
  return wanted != nullptr && second != wanted;
}

// Calls of one lane never run at once; those of `any` do.
enum class Lane : std::size_t { any, main, tenant, first_graph, second_graph, third_graph, count };

// A mutex that threads get in the order in which they ask for it. With another one, a thread that
// locks it again and again keeps the others out.
class FairMutex {
 public:
  void lock() noexcept {
    const unsigned mine = next_.fetch_add(1);
    for (unsigned now = serving_; now != mine; now = serving_) serving_.wait(now);
  }
  void unlock() noexcept {
    serving_.fetch_add(1);
    serving_.notify_all();
  }

 private:
  std::atomic<unsigned> next_{0}, serving_{0};
};

struct World {
  World(Broker& its_broker, LeaseKind its_kind) : broker(its_broker), kind(its_kind) {
    const std::array stages = {created(library, "scratch"), created(twin, "plain"),
                               created(library, "plain"), created(twin, "scratch")};
    for (std::size_t first : {0U, 2U}) {
      graphs.emplace_back(broker, std::vector{stages[first], stages[first + 1]}, test_sizes);
    }
    for (std::size_t graph : {0U, 1U}) {
      right[graph] = std::vector<float>(input.size());
      graphs[graph].process(input.data(), right[graph].data(), picture);
    }
    moving = created(library, "affine");
    GraphOptions options;
    options.jobs_in_flight = 3;
    options.late = LateJobs::dry;
    options.on_done = [this](std::uint64_t) { ++told; };
    graphs.emplace_back(broker, std::vector{moving, created(twin, "affine")}, test_sizes, options);
  }

  PluginInstance* created(const PluginLibrary& from, const char* plugin) {
    instances.push_back(broker.create(from, plugin, {Placement(0), LeaseChoice(kind), {}}));
    instances.back().activate(test_sizes);
    return &instances.back();
  }

  // For a tenant that a thread has for itself.
  Tenant opened() {
    const std::lock_guard lane(lanes[static_cast<std::size_t>(Lane::main)]);
    TenantOptions options{LeaseChoice(kind)};
    options.unload_at_close = true;
    return broker.open_tenant("opened", options);
  }

  void job(std::size_t graph) {
    std::vector<float> output(input.size());
    graphs[graph].process(input.data(), output.data(), picture);
    if (output != right[graph]) ADD_FAILURE() << "graph " << graph << " is wrong";
  }

  // Several are in flight, and one of them is late. All samples are multiplied by one factor.
  void jobs_in_flight() {
    std::uint64_t numbers[3] = {};
    for (std::size_t job = 0; job < 3; ++job) {
      JobInfo info = picture;
      info.deadline_ns = job == 1 ? 1 : 0;
      numbers[job] = graphs[2].submit({{input.data()}, {outputs[job].data()}}, info);
    }
    EXPECT_FALSE(graphs[2].cancel(numbers[2]));  // it has begun
    static_cast<void>(graphs[2].is_done(numbers[0]));
    for (std::size_t job = 0; job < 3; ++job) {
      const JobOutcome outcome = graphs[2].finish(numbers[job]);
      EXPECT_TRUE(job == 1 || outcome == JobOutcome::done) << to_string(outcome);
      EXPECT_THAT(outputs[job], ::testing::Each(outputs[job][0]));
    }
  }

  Broker& broker;
  const LeaseKind kind;
  std::atomic<std::uint64_t> told{0};
  PluginInstance* moving = nullptr;
  const std::vector<float> input = std::vector<float>(std::size_t{16} * 16 * 4, 1);
  PluginLibrary library = broker.load(test_plugin("behaviours"));
  PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  std::vector<float> right[2];  // outputs of the first two graphs
  // Outputs of the third graph's jobs. A submit that fails leaves the earlier jobs in flight, so
  // the outputs must outlive the graph.
  std::vector<float> outputs[3] = {input, input, input};
  std::deque<PluginInstance> instances;  // of the graphs
  std::deque<Graph> graphs;
  PluginInstance idle = broker.create(library, "asks", {Placement(0), LeaseChoice(kind), {}});
  Tenant tenant = broker.open_tenant("tenant", {LeaseChoice(kind)});
  Tenant host = broker.host();
  FairMutex lanes[static_cast<std::size_t>(Lane::count)];
};

struct Operation {
  const char* name;
  Lane lane;
  bool meets_losses;  // it may throw context_lost
  void (*call)(World&);
};

constexpr Operation operations[] = {
    {"job", Lane::first_graph, true, [](World& w) { w.job(0); }},
    {"other_job", Lane::second_graph, true, [](World& w) { w.job(1); }},
    {"jobs_in_flight", Lane::third_graph, true, [](World& w) { w.jobs_in_flight(); }},
    {"parameter", Lane::any, false,
     [](World& w) {
       for (int factor = 1; factor < 4; ++factor) w.moving->set_parameter("factor", factor);
       EXPECT_GE(w.moving->parameter("factor"), 1);
     }},
    {"allocate", Lane::tenant, false, [](World& w) { const DeviceMemory memory(w.tenant, 4096); }},
    {"stream", Lane::tenant, false, [](World& w) { const Stream stream(w.tenant); }},
    {"lease", Lane::tenant, false, [](World& w) { w.tenant.lease(); }},
    {"poll", Lane::main, false, [](World& w) { w.broker.poll(); }},
    {"metrics", Lane::main, false,
     [](World& w) { static_cast<void>(to_json(w.broker.metrics())); }},
    {"timeline", Lane::main, false,
     [](World& w) {
       w.broker.start_timeline({1 << 20});
       w.broker.poll();
       w.broker.write_timeline([](std::string_view) {});
     }},
    {"instance", Lane::main, true,
     [](World& w) {
       PluginInstance made = w.broker.create(w.twin, "affine");
       made.activate(test_sizes);
       made.deactivate();
       made.load_state(made.save_state());
     }},
    {"graph", Lane::main, true,
     [](World& w) {
       w.idle.activate(test_sizes);
       try {
         std::vector<float> output(w.input.size());
         Graph(w.broker, {&w.idle}, test_sizes).process(w.input.data(), output.data(), picture);
       } catch (...) {
         w.idle.deactivate();
         throw;
       }
       w.idle.deactivate();
     }},
    {"library", Lane::main, false,
     [](World& w) {
       static_cast<void>(w.broker.load(test_plugin("behaviours_third")));
       static_cast<void>(w.broker.load(test_plugin("behaviours")));
     }},
    {"tenant", Lane::main, false,
     [](World& w) {
       Tenant made = w.broker.open_tenant("made", {LeaseChoice(w.kind)});
       { const Guard guard(made); }
       static_cast<void>(made.allocate(4096));
       made.close();
     }},
    {"host", Lane::main, false,
     [](World& w) {
       Tenant host = w.broker.host();
       const Guard guard(host);
     }},
    {"close", Lane::any, false,
     [](World& w) {
       Tenant made = w.opened();
       { const Guard guard(made); }
       static_cast<void>(made.allocate(4096));
       made.close();
     }},
    {"adopt", Lane::any, false,
     [](World& w) {
       Tenant made = w.opened();
       EXPECT_NE(made.adopt(test_plugin("unloadable")).symbol("ctxb_plugin_entry"), nullptr);
     }},
    {"guard", Lane::any, false, [](World& w) { const Guard guard(w.tenant); }},
    {"guards", Lane::any, false,
     [](World& w) { const Guard outer(w.host), inner(w.tenant), innermost(w.host); }},
    {"lose_plugin", Lane::any, false,
     [](World& w) { w.broker.force_loss(w.library.tenant(), 0, "a test"); }},
    {"lose_tenant", Lane::any, false,
     [](World& w) { w.broker.force_loss(w.tenant.id(), 0, "a test"); }},
    {"unload", Lane::any, false, [](World& w) { w.broker.unload_idle_modules(0); }},
    {"leases", Lane::any, false, [](World& w) { static_cast<void>(w.broker.leases()); }},
    {"device", Lane::any, false,
     [](World& w) {
       w.broker.use_device(0);
       EXPECT_TRUE(w.broker.shield(0).in_use);
       EXPECT_TRUE(w.broker.has_driver());
       EXPECT_EQ(w.broker.devices().size(), 1U);
       static_cast<void>(w.broker.driver());
       static_cast<void>(w.broker.gate());
     }},
    {"realtime", Lane::any, false,
     [](World& w) {
       w.broker.begin_realtime();
       w.broker.wait_until_ready();
       w.broker.end_realtime();
     }},
    {"status", Lane::any, false, [](World& w) { w.tenant.report_status(0, 1); }},
    {"numbers", Lane::any, false,
     [](World& w) {
       EXPECT_EQ(w.tenant.strikes(), 0u);
       EXPECT_EQ(w.instances[0].metrics().strikes, 0u);
       EXPECT_TRUE(w.tenant.memory_bytes() <= 4096);
       static_cast<void>(w.instances[0].active());
     }},
};
constexpr std::size_t operation_count = std::size(operations);

// Calls it again and again, at least once. Returns how often.
int repeat(World& world, const Operation& operation, const std::atomic<bool>& stop) {
  int calls = 0;
  do {
    ++calls;
    std::unique_lock lane(world.lanes[static_cast<std::size_t>(operation.lane)], std::defer_lock);
    if (operation.lane != Lane::any) lane.lock();
    try {
      operation.call(world);
    } catch (const Error& error) {
      if (!operation.meets_losses || error.kind() != ErrorKind::context_lost) {
        ADD_FAILURE() << operation.name << ": " << error.what();
        return calls;
      }
    }
  } while (!stop);
  return calls;
}

class AtOnceTest : public BrokerTest,
                   public ::testing::WithParamInterface<std::tuple<LeaseKind, std::size_t>> {};

// Forces losses and makes other calls of the broker beside each pair of operations, until `stop`.
void disturb(World& world, const std::atomic<bool>& stop) {
  const TenantId losers[] = {world.library.tenant(), world.twin.tenant(), world.tenant.id(),
                             world.host.id()};
  for (unsigned round = 0; !stop; ++round) {
    world.broker.force_loss(losers[round % 4], 0, "a test");
    world.broker.unload_idle_modules(0);
    {
      const std::lock_guard lane(world.lanes[static_cast<std::size_t>(Lane::main)]);
      if (round % 2 == 0) world.broker.start_timeline({1 << 20});
      world.broker.poll();
      static_cast<void>(world.broker.metrics());
      world.broker.stop_timeline();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));
  }
}

TEST_P(AtOnceTest, OperationsOnTwoThreadsDoNotDisturbEachOther) {
  World world(broker, std::get<0>(GetParam()));
  const Operation& first = operations[std::get<1>(GetParam())];
  std::atomic<bool> over{false};
  std::thread disturber([&] { disturb(world, over); });
  for (std::size_t index = std::get<1>(GetParam()); index < operation_count; ++index) {
    const Operation& second = operations[index];
    if (first.lane == second.lane && first.lane != Lane::any) continue;
    if (is_left_out(second.name)) continue;
    SCOPED_TRACE(second.name);
    std::atomic<bool> stop{false};
    int calls[2] = {};
    std::thread one([&] { calls[0] = repeat(world, first, stop); });
    std::thread two([&] { calls[1] = repeat(world, second, stop); });
    std::this_thread::sleep_for(pair_time());
    stop = true;
    one.join();
    two.join();
    RecordProperty(std::string("beside_") + second.name,
                   std::to_string(calls[0]) + " " + std::to_string(calls[1]));
    if (HasFailure()) break;
  }
  over = true;
  disturber.join();
  // Nothing of it lasts.
  for (const std::size_t graph : {0U, 1U}) EXPECT_NO_THROW(world.job(graph));
  EXPECT_NO_THROW(const Guard guard(world.tenant));
  EXPECT_EQ(world.tenant.lease().state, LeaseState::ready);
  for (const TenantMetrics& tenant : broker.metrics().tenants) EXPECT_EQ(tenant.strikes, 0u);
}

INSTANTIATE_TEST_SUITE_P(, AtOnceTest,
                         ::testing::Combine(::testing::Values(LeaseKind::shared,
                                                              LeaseKind::private_own,
                                                              LeaseKind::green),
                                            ::testing::Range(std::size_t{0}, operation_count)),
                         [](const auto& param) {
                           return std::string(to_string(std::get<0>(param.param))) + "_" +
                                  operations[std::get<1>(param.param)].name;
                         });

}  // namespace
}  // namespace ctxbroker
