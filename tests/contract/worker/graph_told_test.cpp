// SPDX-License-Identifier: Apache-2.0
// What plug-ins in a worker have the host told: strikes, and that they want to be activated again.
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(WorkerGraphTest, TellsOfStrikes) {
  std::mutex mutex;
  std::vector<std::string> strikes;
  WorkerGraphOptions with = graph_options({"CTXB_TEST_DRIVER=" + Broker::open().driver().path});
  with.worker.records = [&](const Record& record) {
    const std::lock_guard lock(mutex);
    if (std::string(record.topic) == "strike") {
      strikes.push_back(record.tenant_name + ": " + record.text);
    }
  };
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return strikes.size();
  };
  WorkerGraph graph({{{"in"}},
                     {{"out"}},
                     {{"pushes_twice", built("test_plugins/behaviours.so"), "pushes_twice"}}},
                    with);
  graph.activate({width, height});
  EXPECT_EQ(graph.node_state(0).metrics.strikes, 0U);
  std::vector<float> pixels(width * height * 4);
  graph.process(pixels.data(), pixels.data(), picture_job());
  EXPECT_EQ(graph.node_state(0).metrics.strikes, 1U);
  for (int i = 0; i < 2000 && count() == 0; ++i) {  // records take another way than answers
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::lock_guard lock(mutex);
  EXPECT_THAT(
      strikes,
      ElementsAre(HasSubstr("behaviours: in worker \"graph\": process: left 1 context(s) pushed")));
}

// In each way in which a host can have a graph, from the record that a plug-in writes.
class HostNameTest : public WorkerGraphTest {
 protected:
  BrokerOptions broker_options() {
    BrokerOptions made;
    made.host_name = "a compositor";
    made.host_version = "7.1";
    made.records = [this](const Record& record) { take(record); };
    return made;
  }
  WorkerGraphOptions told_options() {
    WorkerGraphOptions made = graph_options();
    made.worker.records = [this](const Record& record) { take(record); };
    return made;
  }
  // Waits for the plug-in's record about its host at activation.
  std::string told() {
    for (int i = 0; i < 2000; ++i) {  // records take another way than answers
      {
        const std::lock_guard lock(mutex_);
        if (!last_.empty()) return std::exchange(last_, "");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "nothing";
  }
  const WorkerGraphDescription graph_{
      {{"in"}}, {{"out"}}, {{"parameters", built("test_plugins/parameters.so")}}};
  const ActivationSizes sizes_{width, height};

 private:
  void take(const Record& record) {
    const std::size_t at = record.text.find("host: ");
    const std::lock_guard lock(mutex_);
    if (at != std::string::npos) last_ = record.text.substr(at);
  }
  std::mutex mutex_;
  std::string last_;
};

TEST_F(HostNameTest, PluginInAWorkerSeesTheHostAsInProcess) {
  constexpr auto expected = "host: a compositor 7.1";
  Broker broker = Broker::open(broker_options());
  const PluginLibrary library = broker.load(graph_.nodes[0].library);
  PluginInstance instance = broker.create(library, "parameters");
  instance.activate(sizes_);
  EXPECT_EQ(told(), expected);

  std::vector<PluginInstance*> row{&instance};
  Graph graph(broker, row, sizes_);
  WorkerGraph moved = WorkerGraph::from(std::move(graph), told_options());
  EXPECT_EQ(told(), expected) << "after a move";

  WorkerGraphOptions named = told_options();
  named.host_name = "a compositor";
  named.host_version = "7.1";
  WorkerGraph one(graph_, named);
  one.activate(sizes_);
  EXPECT_EQ(told(), expected) << "with the options";
  one.kill("for the next process");
  one.activate(sizes_);
  EXPECT_EQ(told(), expected) << "in the next process";

  WorkerGraphOptions with_broker = told_options();
  with_broker.broker = &broker;
  WorkerGraph other(graph_, with_broker);
  other.activate(sizes_);
  EXPECT_EQ(told(), expected) << "with the broker's";
}

TEST_F(HostNameTest, HostWithoutANameHasTheSameInAWorker) {
  Broker broker = [&] {
    BrokerOptions unnamed;
    unnamed.records = broker_options().records;
    return Broker::open(std::move(unnamed));
  }();
  PluginInstance instance = broker.create(broker.load(graph_.nodes[0].library), "parameters");
  instance.activate(sizes_);
  const std::string in_process = told();
  EXPECT_EQ(in_process, "host: host 0");
  WorkerGraph graph(graph_, told_options());
  graph.activate(sizes_);
  EXPECT_EQ(told(), in_process);
}

TEST_F(WorkerGraphTest, TellsThatAPluginAsksForARestart) {
  WorkerGraph graph(
      {{}, {{"out"}}, {{"slope", built("test_plugins/pictures.so"), "slope"}}, {{"slope", "out"}}},
      graph_options());
  graph.activate({width, height});
  std::vector<float> pixels(width * height * 4);
  for (std::int64_t position = 0; position < 4; ++position) {
    graph.process({{}, {pixels.data()}}, picture_job(position));
    EXPECT_EQ(graph.node_state(0).restart_requested, position >= 2) << position;
  }
  graph.activate({width, height});
  EXPECT_FALSE(graph.node_state(0).restart_requested);
}

}  // namespace
}  // namespace ctxbroker
