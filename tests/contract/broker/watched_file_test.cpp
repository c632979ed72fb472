// SPDX-License-Identifier: Apache-2.0
// Modules whose files change while plug-ins use them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "behaviours/affine_text.hpp"
#include "module_fixture.hpp"

namespace ctxbroker {
namespace {

using behaviours::affine_text;
using ::testing::HasSubstr;

class WatchedFileTest : public ModuleTest {
 protected:
  WatchedFileTest() { input_.assign(4, 0.0F); }

  void use(PluginInstance& instance) { graph_.emplace(Graph(broker, {&instance}, test_sizes)); }
  float job() {
    std::vector<float> output(4, -1.0F);
    graph_->process(input_.data(), output.data(), {});
    return output[0];
  }
  // Jobs until one gives this; files are looked at now and then only.
  bool becomes(float wanted) {
    return until([&] { return job() == wanted; });
  }
  std::int64_t complaints() const {
    const auto texts = said("module");
    return std::count_if(texts.begin(), texts.end(), [](const std::string& text) {
      return text.find("cannot be used; the old code stays") != std::string::npos;
    });
  }
  template <typename Condition>
  static bool until(Condition condition) {
    const auto begin = std::chrono::steady_clock::now();
    while (!condition()) {
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return false;
    }
    return true;
  }

 private:
  std::vector<float> input_;
  std::optional<Graph> graph_;
};

TEST_F(WatchedFileTest, AChangedFileCountsFromANextJobOn) {
  PluginInstance instance = active("watched");
  use(instance);
  EXPECT_EQ(job(), 1.0F) << "what is built in, without a file";
  write(affine_text(2));
  EXPECT_TRUE(becomes(2));
  EXPECT_TRUE(poll_until_modules_are(1)) << "the old code is unloaded";
  EXPECT_EQ(lease_of().module_reloads, 1u);
}

// With the options of the module's build, and with what stands beside it.
TEST_F(WatchedFileTest, SourceIncludesFilesBesideItAndGetsItsOptions) {
  const std::string source = file().string() + ".cu", header = file().string() + ".cuh";
  const auto write_kernel = [&](const std::string& offset) {
    std::ofstream(source + ".new") << "#include \"" << file().filename().string() << ".cuh\"\n"
                                   << R"(
extern "C" __global__ void affine(float* output, const float* input, unsigned count, float factor,
                                  float offset) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) output[i] = input[i] * factor + offset + ADDED + )"
                                   << offset << ";\n}\n";
    std::filesystem::rename(source + ".new", source);
  };
  std::ofstream(header) << "constexpr float beside = 100;\n";
  write_kernel("beside");
  std::string missing;
  {
    PluginInstance instance = create("watched_source");
    try {
      instance.activate(test_sizes);
      use(instance);
      EXPECT_EQ(job(), 130.0F);
      write_kernel("2 * beside");
      EXPECT_TRUE(becomes(230));
    } catch (const Error& error) {
      missing = error.what();
    }
  }
  std::filesystem::remove(source);
  std::filesystem::remove(header);
  if (missing.empty()) return;
  ASSERT_THAT(missing, HasSubstr("run-time compiler is not on this machine"));
  GTEST_SKIP() << missing;
}

TEST_F(WatchedFileTest, BadFileIsReportedOnceAndTheOldCodeStays) {
  PluginInstance instance = active("watched");
  use(instance);
  write("no code");
  EXPECT_TRUE(until([&] { return job() == 1.0F && complaints() == 1; }));
  std::string other = affine_text(4);
  other.replace(other.find("entry affine"), 12, "entry affinE");
  write(other);
  EXPECT_TRUE(until([&] { return job() == 1.0F && complaints() == 2; }))
      << "the kernel in use is not in it";
  write(affine_text(3));
  EXPECT_TRUE(becomes(3));
  EXPECT_EQ(complaints(), 2);
  EXPECT_TRUE(poll_until_modules_are(1));
}

TEST_F(WatchedFileTest, WithAVariableInUseThePluginIsActivatedAgain) {
  const std::string head = ".visible .global .align 4 .f32 bias;\n";
  const std::string add = "  ld.global.f32 %f6, [bias];\n  add.rn.f32 %f5, %f5, %f6;\n";
  write(affine_text(1, head, add));
  PluginInstance instance = active("watched_bias");
  use(instance);
  EXPECT_EQ(job(), 1001.0F);
  write(affine_text(2, head, add));
  EXPECT_TRUE(becomes(1002)) << "the new variable was set anew";
}

TEST_F(WatchedFileTest, ChangedFileIsIgnoredInRealTime) {
  PluginInstance instance = create("watched");
  ActivationSizes sizes = test_sizes;
  sizes.realtime = true;
  instance.activate(sizes);
  use(instance);
  write(affine_text(2));
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(250)) {
    ASSERT_EQ(job(), 1.0F);
  }
}

TEST_F(WatchedFileTest, ChangedFileIsSeenAfterARealTimeSession) {
  PluginInstance instance = active("watched");
  use(instance);
  broker.begin_realtime();
  write(affine_text(2));
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(250)) {
    ASSERT_EQ(job(), 1.0F);
  }
  broker.end_realtime();
  EXPECT_TRUE(becomes(2));
}

TEST_F(WatchedFileTest, FileChangesWhileJobsRunReachTheJobs) {
  PluginInstance instance = active("watched");
  std::atomic<int> seen{1};
  std::atomic<bool> stop{false};
  std::string failure;
  std::thread worker([&] {
    try {
      Graph graph(broker, {&instance}, test_sizes);
      std::vector<float> samples(4, 0.0F), output(4, -1.0F);
      while (!stop) {
        graph.process(samples.data(), output.data(), {});
        seen = static_cast<int>(output[0]);
      }
    } catch (const Error& error) {
      failure = error.what();
      seen = -1;
    }
  });
  for (int version = 2; version <= 4; ++version) {
    write(affine_text(static_cast<float>(version)));
    EXPECT_TRUE(until([&] { return seen == version || seen == -1; }));
    EXPECT_EQ(seen, version);
  }
  stop = true;
  worker.join();
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace ctxbroker
