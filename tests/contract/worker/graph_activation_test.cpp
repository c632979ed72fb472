// SPDX-License-Identifier: Apache-2.0
// After a failed activation, all plug-ins of a worker are as before, also when its memory has come
// to an end. And a worker's last calls, destroy and the unloading, fail like any other ones.
#include <chrono>
#include <filesystem>

#include "graph_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// The second plug-in leaves the process without memory when it is activated, and gives it back when
// it is deactivated.
TEST_F(WorkerGraphTest, ActivationWithoutMemoryLeavesAllInactive) {
  if (sanitized) GTEST_SKIP() << "a sanitizer has memory of its own";
  WorkerGraphDescription row{
      {{"in"}}, {{"out"}}, {node_of("exposure"), node_of("short_of_memory", "test_plugins/")}};
  const TempFolder folder;
  write_bytes(folder / "short", "");
  WorkerGraph graph(row, graph_options({"CTXB_TEST_SHORT=" + (folder / "short").string()}));
  const int process = graph.process_id();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(error_of(ErrorKind::out_of_host_memory,
                         [&] {
                           graph.activate({width, height});
                         }),
                HasSubstr("no more memory"));
    EXPECT_FALSE(graph.active());
    const Preset saved = graph.save_preset(1);  // not allowed while a plug-in is active
    EXPECT_TRUE(saved.state.has_value());
  }
  std::filesystem::remove(folder / "short");
  graph.activate({width, height});
  std::vector<float> pixels(width * height * 4);
  EXPECT_EQ(graph.process(pixels.data(), pixels.data(), picture_job()), JobOutcome::done);
  EXPECT_EQ(graph.process_id(), process);
  EXPECT_EQ(graph.exits(), 0U);
}

// With a time limit that is short if the call is to hang.
class WorkerGraphLastCallTest : public WorkerGraphTest {
 protected:
  WorkerExit end_of(const WorkerNode& node, const std::string& variable) {
    const bool hangs = variable.find("endless") != std::string::npos;
    WorkerGraphOptions with = graph_options({variable});
    with.worker.call_timeout = hangs ? milliseconds(3000) : milliseconds(20'000);
    const std::size_t before = ends().size();
    std::chrono::steady_clock::time_point begin;
    {
      WorkerGraph graph({{{"in"}}, {{"out"}}, {node}}, with);
      graph.activate({width, height});
      graph.deactivate();
      EXPECT_EQ(graph.exits(), 0U);
      begin = std::chrono::steady_clock::now();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    WorkerExit end = wait_for_end(before + 1);
    EXPECT_STREQ(to_string(end.cause), hangs ? "late" : "signal");
    EXPECT_THAT(records(), Contains("error graph: " + end.text + "; the host has closed it"));
    return end;
  }
};

TEST_F(WorkerGraphLastCallTest, BadEndInDestroyNamesThePlugin) {
  for (const char* way : {"segv", "abort", "endless"}) {
    const WorkerExit end =
        end_of(node_of("crashes", "test_plugins/"), std::string("CTXB_TEST_CRASH=destroy:") + way);
    EXPECT_THAT(end.text, HasSubstr(" in destroy of plug-in com.example.test.crashes"));
    ASSERT_EQ(end.running.size(), 1U);
    EXPECT_EQ(end.running[0].plugin, "com.example.test.crashes");
  }
}

TEST_F(WorkerGraphLastCallTest, BadEndWhileUnloadingNamesTheLibrary) {
  for (const char* way : {"abort", "endless"}) {
    const WorkerExit end =
        end_of({"affine", built("test_plugins/behaviours_unloadable.so"), "affine"},
               std::string("CTXB_TEST_UNLOAD=") + way);
    EXPECT_THAT(end.text, AllOf(HasSubstr(" in dlclose of library \""),
                                HasSubstr("behaviours_unloadable.so\"")));
  }
}

// A library that stays until the process exits.
TEST_F(WorkerGraphLastCallTest, BadEndAtTheExitIsTold) {
  for (const char* way : {"segv", "endless"}) {
    const WorkerExit end =
        end_of(node_of("crashes", "test_plugins/"), std::string("CTXB_TEST_CRASH=dlclose:") + way);
    EXPECT_THAT(end.text, HasSubstr(" after its stop"));
  }
}

}  // namespace
}  // namespace ctxbroker
