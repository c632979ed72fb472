// SPDX-License-Identifier: Apache-2.0
// Pictures between the processes of a graph stay on the device.
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "groups_fixture.hpp"
#include "support/left.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class WorkerLinksTest : public WorkerGroupsTest {
 protected:
  static std::vector<float> run(WorkerGraph& graph, const std::vector<float>& input) {
    std::vector<float> output(input.size());
    graph.process(input.data(), output.data(), picture_job());
    return output;
  }
  // Matches records that say how many pictures stay on the device.
  auto has_links(const std::string& count) {
    return Contains(HasSubstr(count + " pictures between processes stay on device 0"));
  }

  const std::vector<float> input = noise(std::size_t{width} * height * 4, 7);
};

class FrameLinksTest : public WorkerLinksTest, public ::testing::WithParamInterface<const char*> {};

// Also when one process after the other, or all of them, have ended.
TEST_F(WorkerLinksTest, PicturesOfARowStayOnTheDevice) {
  const WorkerGraphDescription three = row({"exposure", "blur", "vignette"});
  InProcess here(three);
  here.activate({width, height});
  std::vector<float> expected(input.size());
  here.graph->process(input.data(), expected.data(), picture_job());
  for (const bool retry : {false, true}) {
    WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
    with.retry = retry;
    WorkerGraph graph(three, with);
    graph.activate({width, height});
    EXPECT_THAT(records(), has_links("2"));
    EXPECT_EQ(run(graph, input), expected);
    for (const std::size_t node : {0U, 1U, 2U}) {
      kill(graph.process_id(node), SIGKILL);
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (graph.exits(node) == 0 && std::chrono::steady_clock::now() < until) continue;
      EXPECT_EQ(run(graph, input), expected) << node;
      EXPECT_EQ(graph.exits(node), 1U);
    }
    graph.kill("all of them");
    EXPECT_EQ(run(graph, input), expected);
  }
}

// Whoever makes the memory is to blame, and nobody else.
TEST_F(WorkerLinksTest, FalseMemoryDescriptorEndsItsMaker) {
  if (sanitized) GTEST_SKIP() << "a sanitizer has to be loaded first";
  const auto junk =
      std::filesystem::temp_directory_path() / ("ctxb_junk_" + std::to_string(getpid()));
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.worker.environment.push_back("LD_PRELOAD=" +
                                    built("test_plugins/junk_descriptors.so").string());
  with.worker.environment.push_back("CTXB_TEST_JUNK=" + junk.string());
  WorkerGraph graph(row({"exposure", "blur"}), with);
  graph.activate({width, height});
  EXPECT_THAT(records(), has_links("1"));
  const auto expected = run(graph, input);
  std::ofstream(junk).put('x');
  kill(graph.process_id(0), SIGKILL);
  wait_for_end();
  for (std::size_t end = 2; end <= 3; ++end) {
    EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(graph, input); }),
                HasSubstr("it has made device memory that another process cannot take"));
    EXPECT_EQ(graph.last_exit(0)->cause, WorkerExitCause::lie);
    EXPECT_EQ(graph.exits(0), end);
  }
  std::filesystem::remove(junk);
  EXPECT_EQ(run(graph, input), expected);
  EXPECT_EQ(graph.exits(1), 0U);
}

// The last process still reads the picture of one job when the next job begins.
TEST_F(WorkerLinksTest, PicturesOfJobsInFlightDoNotMix) {
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.graph.jobs_in_flight = 4;
  WorkerGraph graph(row({"exposure", "blur"}), with);
  constexpr std::uint32_t edge = 192;  // so that the blur takes longer than what comes before it
  const JobInfo job{edge, edge};
  graph.set_parameter(1, "radius", 32);
  graph.activate({edge, edge});
  constexpr unsigned jobs = 8;
  std::vector<std::vector<float>> inputs, expected, got;
  for (unsigned i = 0; i < jobs; ++i) {
    inputs.push_back(noise(std::size_t{edge} * edge * 4, i));
    expected.emplace_back(inputs.back().size());
    got.emplace_back(inputs.back().size());
    graph.process(inputs[i].data(), expected[i].data(), job);
  }
  std::vector<std::uint64_t> numbers;
  for (unsigned i = 0; i < jobs; ++i) {
    numbers.push_back(graph.submit({{inputs[i].data()}, {got[i].data()}}, job));
    if (i != 0) {
      EXPECT_EQ(got[i - 1], expected[i - 1]) << "the picture that it reads is overwritten now";
    }
  }
  EXPECT_EQ(graph.finish(numbers.back()), JobOutcome::done);
  EXPECT_EQ(graph.finish(numbers[jobs - 2]), JobOutcome::done);
  EXPECT_EQ(got, expected);
}

// A process that ends again while the graph comes back into it is lost, and nothing else.
TEST_F(WorkerLinksTest, ProcessThatEndsInItsAnswerIsALoss) {
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.worker.crash_limit = 0;
  WorkerGraph graph(row({"exposure", "blur"}), with);
  graph.activate({width, height});
  const auto expected = run(graph, input);
  const auto try_it = [&] {
    try {
      EXPECT_EQ(run(graph, input), expected);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
    }
  };
  // On a GPU, each start takes a while.
  const int rounds = graph.driver().kind == DriverChoice::software ? 60 : 8;
  for (int round = 0; round < rounds; ++round) {
    const int old = graph.process_id(1);
    kill(old, SIGKILL);
    std::thread again([&, until = std::chrono::steady_clock::now() + std::chrono::seconds(10)] {
      const auto is_there = [&] {
        const int now = graph.process_id(1);
        return now != 0 && now != old && graph.state(1) == WorkerState::ready;
      };
      while (!is_there() && std::chrono::steady_clock::now() < until) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
      const int now = graph.process_id(1);
      if (now != 0 && now != old) kill(now, SIGKILL);
    });
    try_it();
    try_it();
    again.join();
    while (true) {  // until it is back
      try {
        run(graph, input);
        break;
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
      }
    }
  }
}

// A process that ends between two frames of a job makes its memory anew, and what was in it is
// lost.
TEST_F(WorkerLinksTest, ProcessThatEndsInAJobIsALoss) {
  // It holds the host wherever it is, until the end is known.
  std::signal(SIGUSR1, [](int) { usleep(5000); });
  for (const bool retry : {false, true}) {
    WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
    with.worker.crash_limit = 0;
    with.retry = retry;
    WorkerGraph graph(row({"exposure", "time_blur"}), with);
    graph.activate({width, height});
    ASSERT_GT(graph.job_inputs().size(), 2U);
    // Two jobs in turns, so that each leaves other pictures behind.
    std::vector<float> pictures[2] = {input, noise(input.size(), 8)}, expected[2];
    const auto run_one = [&](int job) {
      const std::vector<const void*> inputs(graph.job_inputs().size(), pictures[job].data());
      std::vector<float> output(input.size());
      graph.process({inputs, {output.data()}}, picture_job());
      return output;
    };
    expected[0] = run_one(0);
    const auto begin = std::chrono::steady_clock::now();
    expected[1] = run_one(1);
    const auto takes = std::chrono::steady_clock::now() - begin;
    const int rounds = graph.driver().kind == DriverChoice::software ? 100 : 20;
    for (int round = 0; round < rounds; ++round) {
      std::thread killer([&, process = graph.process_id(0), host = pthread_self()] {
        std::this_thread::sleep_for(takes * round / rounds);
        pthread_kill(host, SIGUSR1);
        kill(process, SIGKILL);
      });
      try {
        EXPECT_EQ(run_one(0), expected[0]) << round;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
        EXPECT_FALSE(retry) << error.what();
      }
      killer.join();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (graph.exits(0) <= static_cast<unsigned>(round) &&
             std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
      }
      EXPECT_EQ(run_one(1), expected[1]) << round;
    }
  }
}

// Each frame that a plug-in needs has its own memory. A frame that is needed several times goes
// through host memory, because it can be needed in different parts.
TEST_P(FrameLinksTest, FramesThatAreNeededOnceStayOnTheDevice) {
  const bool is_once = std::string(GetParam()) == "blur";
  const WorkerGraphDescription frames = row({"exposure", GetParam(), "time_blur"});
  InProcess here(frames);
  WorkerGraph graph(frames, grouped(WorkerGrouping::each_instance));
  here.activate({width, height});
  graph.activate({width, height});
  ASSERT_GT(graph.job_inputs().size(), 1U);
  EXPECT_THAT(records(), has_links(is_once ? "6" : "3"));
  std::vector<std::vector<float>> pictures;
  JobBuffers buffers, buffers_here;
  std::vector<float> expected(input.size()), got(input.size());
  for (unsigned i = 0; i < graph.job_inputs().size(); ++i) {
    pictures.push_back(noise(input.size(), i));
  }
  for (const auto& picture : pictures) buffers.inputs.push_back(picture.data());
  buffers_here = buffers;
  buffers.outputs = {got.data()};
  buffers_here.outputs = {expected.data()};
  here.graph->process(buffers_here, picture_job());
  graph.process(buffers, picture_job());
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(, FrameLinksTest, ::testing::Values("blur", "time_blur"),
                         [](const auto& middle) { return std::string(middle.param); });

// A picture that several read, or that the host gets, is in host memory. So is sound.
TEST_F(WorkerLinksTest, SharedPicturesAndSoundGoThroughHostMemory) {
  WorkerGraph pictures(sharp_and_blurred(), grouped(WorkerGrouping::each_instance));
  pictures.activate({width, height});
  EXPECT_THAT(records(), has_links("1"));  // from blur to merge
  WorkerGraph sound(row({"gain", "gain"}), grouped(WorkerGrouping::each_instance));
  sound.activate({block, channels, 48000});
  EXPECT_THAT(records(), Not(has_links("2")));
}

TEST_F(WorkerLinksTest, GraphWithoutTheDeviceWorksThroughHostMemory) {
  WorkerGraphDescription graph = row({"exposure", "blur"});
  graph.device = 99;
  WorkerGraph none(graph, grouped(WorkerGrouping::each_instance));
  none.activate({width, height});
  const auto got = run(none, input);
  EXPECT_THAT(records(), Not(has_links("1")));
  graph.device = 0;
  WorkerGraph links(graph, grouped(WorkerGrouping::each_instance));
  links.activate({width, height});
  EXPECT_EQ(run(links, input), got);
  EXPECT_THAT(records(), has_links("1"));
}

// A record says why.
TEST_F(WorkerLinksTest, GraphWithoutShareableMemoryWorksThroughHostMemory) {
  if (Broker::open().driver().kind != DriverChoice::software) {
    GTEST_SKIP() << "only the software device can be told to fail";
  }
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.worker.environment.emplace_back(
      "CTXBROKER_SOFTWARE_FAIL=cuMemExportToShareableHandle:1=CUDA_ERROR_NOT_SUPPORTED");
  WorkerGraph none(row({"exposure", "blur"}), with);
  none.activate({width, height});
  EXPECT_THAT(records(), Contains(HasSubstr("through host memory: ")));
  WorkerGraph links(row({"exposure", "blur"}), grouped(WorkerGrouping::each_instance));
  links.activate({width, height});
  EXPECT_EQ(run(none, input), run(links, input));
}

TEST_F(WorkerLinksTest, LinksLeaveNothing) {
  const Left before = settled_left();
  {
    WorkerGraph graph(row({"exposure", "blur", "vignette"}),
                      grouped(WorkerGrouping::each_instance));
    Left active{};
    for (int round = 0; round < 4; ++round) {
      graph.activate({width, height});
      run(graph, input);
      if (round == 0) active = left();
    }
    EXPECT_EQ(left_after_all(active), active);
  }
  EXPECT_EQ(left_after_all(before), before);
}

}  // namespace
}  // namespace ctxbroker
