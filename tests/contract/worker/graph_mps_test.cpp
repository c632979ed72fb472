// SPDX-License-Identifier: Apache-2.0
// Graphs whose workers share the host's MPS server. With NVIDIA's driver, it is a real one.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "graph_fixture.hpp"
#include "mps_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class WorkerMpsTest : public WorkerGraphTest {
 protected:
  void SetUp() override {
    if (is_software) fake_ = std::make_unique<FakeMps>();
    try {
      server_.emplace(is_software ? fake_->options() : MpsServerOptions{});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::plugin_not_found) throw;
      GTEST_SKIP() << error.what();
    }
  }

  WorkerGraphOptions outside(const std::string& name) {
    WorkerGraphOptions made = graph_options();
    made.worker.name = name;
    return made;
  }
  WorkerGraphOptions inside(const std::string& name) {
    WorkerGraphOptions made = outside(name);
    const std::string variable = server_->variable();
    made.worker.environment.push_back(variable);
    // The software device plays a client of this server.
    made.worker.environment.push_back("CTXBROKER_SOFTWARE_MPS=" +
                                      variable.substr(variable.find('=') + 1));
    return made;
  }

  // A plug-in whose kernel can fault, and one whose work can be seen.
  static WorkerGraph started(const WorkerGraphOptions& options) {
    WorkerGraph graph(
        {{{"in"}}, {{"out"}}, {node_of("memory_faults", "test_plugins/"), node_of("exposure")}},
        options);
    graph.set_parameter(1, "stops", 1);
    graph.activate({width, height});
    return graph;
  }
  void works(WorkerGraph& graph) {
    std::vector<float> output(input.size());
    ASSERT_EQ(graph.process(input.data(), output.data(), picture_job()), JobOutcome::done);
    for (std::size_t i = 0; i < input.size(); ++i) {
      ASSERT_EQ(output[i], input[i] * (i % 4 == 3 ? 1 : 2)) << i;
    }
  }
  // While old clients live, the server lets no new one in, and their ends come late.
  void works_after_a_while(WorkerGraph& graph) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      try {
        return works(graph);
      } catch (const Error& error) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << error.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  const std::vector<float> input = noise(std::size_t{width} * height * 4, 5);
  Broker broker = Broker::open();
  const bool is_software = broker.driver().kind == DriverChoice::software;

 private:
  std::unique_ptr<FakeMps> fake_;
  std::optional<MpsServer> server_;
};

TEST_F(WorkerMpsTest, OnlyWorkersOfTheGroupAreClients) {
  WorkerGraph first = started(inside("first")), second = started(inside("second"));
  WorkerGraph other = started(outside("other"));
  EXPECT_TRUE(first.devices()[0].mps);
  EXPECT_TRUE(second.devices()[0].mps);
  EXPECT_FALSE(other.devices()[0].mps);
  EXPECT_FALSE(broker.devices()[0].mps);
  for (int round = 0; round < 3; ++round) {
    for (WorkerGraph* graph : {&first, &second, &other}) works(*graph);
  }
}

// The price of the server: the neighbour has done nothing.
TEST_F(WorkerMpsTest, AFaultEndsTheGroupAndNoOtherWorker) {
  if (is_software) GTEST_SKIP() << "the software device's clients share nothing";
  WorkerGraph faulty = started(inside("faulty")), neighbour = started(inside("neighbour"));
  WorkerGraph other = started(outside("other"));
  for (WorkerGraph* graph : {&faulty, &neighbour, &other}) works(*graph);
  std::vector<float> output(input.size());
  const auto job_of = [&](WorkerGraph& graph) {
    return error_of(ErrorKind::context_lost,
                    [&] { graph.process(input.data(), output.data(), picture_job()); });
  };
  faulty.set_parameter(0, "access", 1);
  faulty.set_parameter(0, "offset", 1 << 20);
  EXPECT_THAT(job_of(faulty), HasSubstr("worker \"faulty\""));
  EXPECT_THAT(job_of(neighbour), HasSubstr("worker \"neighbour\""));
  EXPECT_STREQ(to_string(neighbour.last_exit()->cause), "cuda-ended");
  works(other);
  EXPECT_EQ(other.exits(), 0U);
  // All old clients have ended, so the group can start again.
  faulty.set_parameter(0, "access", 0);
  works_after_a_while(faulty);
  works_after_a_while(neighbour);
  EXPECT_TRUE(faulty.devices()[0].mps);
  EXPECT_TRUE(neighbour.devices()[0].mps);
}

}  // namespace
}  // namespace ctxbroker
