// SPDX-License-Identifier: Apache-2.0
// What plug-ins answer wrongly, in each function that a host calls.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AnswersTest : public BrokerTest {
 public:
  ~AnswersTest() override { unsetenv("CTXB_TEST_ANSWER"); }

 protected:
  AnswersTest() { answer(""); }

  // Sets what the fixture "answers" does wrong, such as "get_extent throws". An empty text means
  // nothing.
  static void answer(const std::string& wrong) { setenv("CTXB_TEST_ANSWER", wrong.c_str(), 1); }

  PluginInstance made(const char* plugin = "answers") {
    return broker.create(broker.load(test_plugin("answers")), plugin, {Placement(0)});
  }
  PluginInstance active_one() {
    PluginInstance instance = made();
    instance.activate(test_sizes);
    return instance;
  }
  Graph graph_of(PluginInstance& instance) { return {broker, {&instance}, test_sizes}; }

  std::string last_strike() const {
    const std::vector<std::string> all = said("strike");
    return all.empty() ? "" : all.back();
  }

  // One pixel of the picture in the middle.
  static JobInfo middle() {
    JobInfo job;
    job.width = job.height = 8;
    job.region = {4, 4, 1, 1};
    return job;
  }

  // Everything that a host does with a plug-in. Whatever fails has to be an Error.
  void live(const char* plugin, const ActivationSizes& sizes) {
    const auto attempt = [](const auto& work) {
      try {
        work();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("answers"));
      }
    };
    attempt([&] {
      PluginInstance instance = made(plugin);
      attempt([&] { static_cast<void>(instance.save_state()); });
      attempt([&] { instance.load_state({}); });
      attempt([&] { static_cast<void>(instance.to_text("level", 1)); });
      attempt([&] { static_cast<void>(instance.from_text("level", "1")); });
      instance.activate(sizes);
      attempt([&] { static_cast<void>(instance.tail_frames()); });
      attempt([&] {
        Graph graph(broker, {&instance}, sizes);
        const std::vector<float> input(64 * 4, 0.5F);
        std::vector<float> output(64 * 4);
        JobInfo job = middle();
        job.region = {};
        job.height = 4;
        job.sample_rate = sizes.sample_rate;
        graph.process(input.data(), output.data(), job);
      });
      broker.poll();
      broker.force_loss(instance.lease().tenant, 0, "a test");
      broker.poll();
    });
  }

  void live_twice() {
    live("answers", test_sizes);
    live("answers_audio", {64, 4, 48000, false});
  }
  void neighbour_works() {
    PluginInstance neighbour = active("affine");
    EXPECT_EQ(run({&neighbour})[3], 3.0F);
  }
};

// ---- Each function ---------------------------------------------------------------------------

class EachFunctionTest : public AnswersTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(EachFunctionTest, ExceptionIsCaughtAndStruck) {
  answer(GetParam() + std::string(" throws"));
  live_twice();
  EXPECT_THAT(
      said("strike"),
      Contains(AllOf(HasSubstr(GetParam()), HasSubstr("threw an exception: thrown in an answer"))));
  neighbour_works();
}

TEST_P(EachFunctionTest, ContextLeftBehindIsStruck) {
  answer(GetParam() + std::string(" pushes"));
  live_twice();
  EXPECT_THAT(said("strike"), Contains(HasSubstr(GetParam())));
  EXPECT_THAT(said("plugin"), Not(Contains(HasSubstr("nothing could be pushed"))));
  neighbour_works();
}

TEST_P(EachFunctionTest, AllocationWhereItIsNotAllowedIsRefused) {
  if (std::string(GetParam()) == "activate") GTEST_SKIP() << "there it is allowed";
  answer(GetParam() + std::string(" allocates"));
  live_twice();
  EXPECT_THAT(said("plugin"), Not(Contains(HasSubstr("memory was allocated"))));
  if (std::string(GetParam()) != "context_lost") {
    EXPECT_THAT(said("strike"), Contains(HasSubstr("not allowed while the instance is")));
  }
  neighbour_works();
}

TEST_P(EachFunctionTest, AllowedQuestionsToTheHostAreNoStrike) {
  answer(GetParam() + std::string(" asks"));
  live_twice();
  EXPECT_THAT(said("strike"), IsEmpty());
  neighbour_works();
}

INSTANTIATE_TEST_SUITE_P(All, EachFunctionTest,
                         ::testing::Values("get_frames", "get_extent", "get_region", "latency",
                                           "tail", "to_text", "from_text", "save", "load",
                                           "on_main_thread", "activate", "process", "deactivate",
                                           "context_lost", "destroy"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(AnswersTest, RightAnswersAreNoStrike) {
  live_twice();
  EXPECT_THAT(said("strike"), IsEmpty());
  PluginInstance instance = active_one();
  EXPECT_EQ(run({&instance})[5], 5.0F);
}

// ---- Tables of extensions --------------------------------------------------------------------

class EachTableTest : public AnswersTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(EachTableTest, InvalidTableIsStruckAndNotUsed) {
  for (const auto& [how, says] : {std::pair("null", "a function in the table is null"),
                                  {"short", "the table's size is wrong"},
                                  {"huge", "the table's size is wrong"},
                                  {"crooked", "the table's size is wrong"},
                                  {"throws", "thrown in an answer"}}) {
    answer(GetParam() + std::string(" ") + how);
    PluginInstance instance = made();
    EXPECT_EQ(instance.metrics().strikes, 1U) << how;
    EXPECT_THAT(last_strike(), HasSubstr(says));
    instance.activate(test_sizes);
    EXPECT_EQ(run({&instance})[5], 5.0F) << how;
    EXPECT_EQ(instance.tail_frames() + instance.latency_frames(), 0U);
    EXPECT_NO_THROW(static_cast<void>(instance.to_text("level", 1)));
    EXPECT_NO_THROW(static_cast<void>(instance.from_text("level", "1")));
    live_twice();
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachTableTest,
                         ::testing::Values("ctxbroker.frames/1", "ctxbroker.regions/1",
                                           "ctxbroker.latency/1", "ctxbroker.parameter-text/1",
                                           "ctxbroker.state/1", "ctxbroker.callback/1"),
                         [](const auto& test) {
                           const std::string id = test.param;
                           const std::string name = id.substr(10, id.find('/') - 10);
                           return name == "parameter-text" ? "text" : name;
                         });

// ---- Frames and regions ----------------------------------------------------------------------

TEST_F(AnswersTest, AbsurdFramesAreStruck) {
  PluginInstance instance = active_one();
  for (const auto& [wrong, says] :
       {std::pair("get_frames reaches_far", "asks for the frames -2147483648 to 2147483647"),
        {"get_frames turns_round", "asks for the frames 1 to -1"}}) {
    answer(wrong);
    const std::uint64_t before = instance.metrics().strikes;
    EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { graph_of(instance); }),
                AllOf(HasSubstr("plug-in answers"), HasSubstr(says)));
    EXPECT_EQ(instance.metrics().strikes, before + 1);
    EXPECT_THAT(last_strike(), HasSubstr(says));
  }
}

TEST_F(AnswersTest, AbsurdRegionsAreStruck) {
  PluginInstance instance = active_one();
  Graph graph = graph_of(instance);
  for (const auto& [wrong, says] :
       {std::pair("get_extent is_empty", "its output out (answers) has 0 x 0 pixels"),
        {"get_region is_outside", "it needs 8 x 8 pixels at (1, 0) of its input in"}}) {
    answer(wrong);
    const std::uint64_t before = instance.metrics().strikes;
    const float pixel[4] = {};
    float out[4];
    EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { graph.process(pixel, out, middle()); }),
                HasSubstr(says));
    EXPECT_EQ(instance.metrics().strikes, before + 1);
    EXPECT_THAT(last_strike(), HasSubstr(says));
  }
}

TEST_F(AnswersTest, AnImpossibleBypassIsStruck) {
  PluginInstance instance = active_one();
  Graph graph = graph_of(instance);
  answer("get_region is_small");
  const std::vector<float> input(64 * 4);
  std::vector<float> output(64 * 4);
  JobInfo job = middle();
  job.region = {};
  EXPECT_THAT(error_text(ErrorKind::plugin_failed,
                         [&] { graph.process(input.data(), output.data(), job); }),
              HasSubstr("answered CTXB_BYPASS, and its input in has 1 x 1 pixels"));
  EXPECT_EQ(instance.metrics().strikes, 1U);
}

// The plug-in returns the largest valid extent, which does not fit into the graph's sizes.
TEST_F(AnswersTest, AHugeExtentIsRefused) {
  PluginInstance instance = active_one(), behind = active_one();
  Graph graph(broker, {&instance, &behind}, test_sizes);
  answer("get_extent is_huge");
  const float pixel[4] = {};
  float out[4];
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { graph.process(pixel, out, middle()); }),
              HasSubstr("2147483648 x 2147483648 does not fit into 64 x 64"));
}

// A host that knows nothing of parts has whole pictures, whatever the plug-in needs.
TEST_F(AnswersTest, WithoutARegionTheInputIsTheWholePicture) {
  PluginInstance instance = active_one();
  PluginInstance whole = active("affine");
  Graph graph(broker,
              {{{"in"}},
               {{"out"}},
               {{"asked", &instance}, {"whole", &whole}},
               {{"in", "asked"}, {"asked", "whole"}, {"whole", "out"}}},
              test_sizes);
  std::vector<float> input(64 * 4), output(64 * 4);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i);
  JobInfo job = middle();
  job.region = {};
  graph.process(input.data(), output.data(), job);
  EXPECT_EQ(output, input);
  answer("get_region is_small");
  EXPECT_EQ(graph.input_regions(job).at(0).width, 8U);
  EXPECT_EQ(graph.input_regions(job).at(0).height, 8U);
}

// The host has made room for what it was told, so more must not be read.
TEST_F(AnswersTest, ARegionThatGrowsBetweenTwoQuestionsIsRefused) {
  PluginInstance instance = active_one();
  Graph graph = graph_of(instance);
  answer("get_region changes");
  const JobInfo job = middle();
  EXPECT_EQ(graph.input_regions(job).at(0).width, 1U);
  const float pixel[4] = {1, 2, 3, 4};
  float out[4] = {};
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { graph.process(pixel, out, job); }),
              AllOf(HasSubstr("the job needs 8 x 8 pixels at (0, 0) of host input"),
                    HasSubstr("input_regions said 1 x 1 pixels at (4, 4)")));
  answer("");
  EXPECT_EQ(graph.input_regions(job).at(0).width, 8U);
}

// The broker reports a loss to the plug-in after get_extent has returned, as it does with process.
TEST_F(AnswersTest, APlugInIsNotToldOfALossWhileItAnswers) {
  PluginInstance instance = active_one();
  Graph graph = graph_of(instance);
  void* const library = dlopen(test_plugin("answers").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  auto& hold = *static_cast<std::atomic<bool>*>(dlsym(library, "answers_hold"));
  answer("get_extent holds");
  hold = true;
  std::thread job([&] {
    const std::vector<float> in(8 * 8 * 4);
    std::vector<float> out(in.size());
    try {
      graph.process(in.data(), out.data(), middle());
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): its context is gone
    }
  });
  const auto held = [&] { return ::testing::Value(said("plugin"), Contains("held up")); };
  while (!held()) std::this_thread::yield();
  broker.force_loss(instance.lease().tenant, 0, "a test");
  broker.poll();
  hold = false;
  job.join();
  broker.poll();
  EXPECT_THAT(said("plugin"), ElementsAre(HasSubstr("loaded"), "held up", "goes on", "lost"));
  dlclose(library);
}

// ---- Latencies and texts ---------------------------------------------------------------------

TEST_F(AnswersTest, ALatencyIsAskedOnceForEachActivation) {
  answer("latency changes");
  PluginInstance instance = made("answers_audio");
  for (int activation = 0; activation < 2; ++activation) {
    instance.activate({64, 4, 48000, false});
    EXPECT_EQ(instance.latency_frames(), 1U);
    EXPECT_EQ(instance.latency_frames(), 1U);
    EXPECT_EQ(Graph(broker, {&instance}, {64, 4, 48000, false}).latency_frames(), 1U);
    instance.deactivate();
  }
}

TEST_F(AnswersTest, ALatencyThatIsNotKnownIsAnError) {
  answer("latency throws");
  PluginInstance instance = made("answers_audio");
  instance.activate({64, 4, 48000, false});
  error_text(ErrorKind::plugin_failed, [&] { return instance.latency_frames(); });
  EXPECT_THAT(error_text(ErrorKind::plugin_failed,
                         [&] {
                           const Graph graph(broker, {&instance}, {64, 4, 48000, false});
                         }),
              HasSubstr("answers_audio: latency threw an exception"));
}

TEST_F(AnswersTest, ATextWithoutAnEndIsCutAndStruck) {
  PluginInstance instance = made();
  for (const char* wrong : {"to_text has_no_end", "to_text is_too_long"}) {
    answer(wrong);
    const std::uint64_t before = instance.metrics().strikes;
    EXPECT_EQ(instance.to_text("level", 1), std::string(255, 'x'));
    EXPECT_EQ(instance.metrics().strikes, before + 1) << wrong;
  }
  answer("to_text is_dirty");
  EXPECT_EQ(instance.to_text("level", 1), std::string(2, '?') + "!");
  answer("");
  EXPECT_EQ(instance.to_text("level", 1), "some");
}

TEST_F(AnswersTest, NumberThatIsNotFiniteIsRefused) {
  PluginInstance instance = made();
  for (const char* wrong : {"from_text is_nan", "from_text is_infinite"}) {
    answer(wrong);
    EXPECT_THAT(
        error_text(ErrorKind::parameter_value, [&] { return instance.from_text("level", "x"); }),
        HasSubstr("it takes a number from 0 to 10"));
  }
}

}  // namespace
}  // namespace ctxbroker
