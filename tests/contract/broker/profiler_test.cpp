// SPDX-License-Identifier: Apache-2.0
// Ranges for a profiler. NVTX looks for one once per process, so each case has a process of its
// own.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "broker_fixture.hpp"
#include "nvtx_injection/ranges.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using nvtx_injection::Range;
using ::testing::HasSubstr;

// Returns the ranges that the stand-in has seen, or nothing if NVTX has not loaded it.
std::vector<Range> seen_ranges() {
  std::vector<Range> found;
  void* library = dlopen(test_plugin("nvtx_injection").c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return found;
  void* function = dlsym(library, nvtx_injection::seen_ranges_symbol);
  if (function != nullptr) reinterpret_cast<nvtx_injection::SeenRanges>(function)(&found);
  return found;
}

std::size_t count(const std::vector<Range>& ranges, const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      ranges.begin(), ranges.end(), [&](const Range& one) { return one.text == text; }));
}

class ProfilerTest : public BrokerTest {};

TEST_F(ProfilerTest, DISABLED_PrintsTheRangesOfJobs) {
  PluginInstance first = active("affine"), second = active("scratch");
  for (int job = 0; job < 3; ++job) run({&first, &second});
  first.deactivate();
  const std::vector<Range> ranges = seen_ranges();
  for (const Range& range : ranges) {
    std::printf("%d %s\n", range.depth, range.text.c_str());
    EXPECT_EQ(range.domain, "ctxbroker");
    EXPECT_TRUE(range.ended) << range.text;
  }
  std::printf("ranges: %zu\n", ranges.size());
  if (std::getenv("NVTX_INJECTION64_PATH") == nullptr) return;
  EXPECT_EQ(count(ranges, "activate affine"), 1u);
  EXPECT_EQ(count(ranges, "activate scratch"), 1u);
  EXPECT_EQ(count(ranges, "job"), 3u);
  EXPECT_EQ(count(ranges, "process affine"), 3u);
  EXPECT_EQ(count(ranges, "process scratch"), 3u);
  EXPECT_EQ(count(ranges, "deactivate affine"), 1u);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].text == "job") {
      ASSERT_LT(i + 2, ranges.size());
      EXPECT_EQ(ranges[i].depth, 0);
      EXPECT_EQ(ranges[i + 1].text, "process affine");
      EXPECT_EQ(ranges[i + 1].depth, 1);
      EXPECT_EQ(ranges[i + 2].text, "process scratch");
      EXPECT_EQ(ranges[i + 2].depth, 1);
    }
  }
}

TEST(ProfilerInAProcessTest, ProfilerSeesJobsAndPluginCalls) {
  const ChildResult child = run_child("ProfilerTest.DISABLED_PrintsTheRangesOfJobs",
                                      {{"NVTX_INJECTION64_PATH", test_plugin("nvtx_injection")}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("1 process affine"));
}

TEST(ProfilerInAProcessTest, ProfilerLibraryIsNotLoadedUnasked) {
  const ChildResult child = run_child("ProfilerTest.DISABLED_PrintsTheRangesOfJobs");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("ranges: 0\n"));
}

}  // namespace
}  // namespace ctxbroker
