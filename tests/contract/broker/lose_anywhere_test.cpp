// SPDX-License-Identifier: Apache-2.0
// Lose-anywhere: a host at work, in which the k-th driver call fails, for every k. Whatever fails,
// nothing crashes, hangs or stays behind, and who has nothing to do with it is not disturbed.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <span>

#include "support/child_process.hpp"
#include "support/process_state.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"
#include "working_host.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Only every so many calls fail in turn (1: all), beginning with a call that differs every time.
std::uint64_t step_from_environment() {
  const char* text = std::getenv("CTXB_LOSE_EVERY");
  return text == nullptr ? 10 : std::strtoull(text, nullptr, 10);
}

std::uint64_t offset_from_environment(std::uint64_t step) {
  const char* text = std::getenv("CTXB_LOSE_OFFSET");
  return text == nullptr ? std::random_device{}() % step : std::strtoull(text, nullptr, 10);
}

// A driver call that makes something, and the one that gives it back.
struct Pair {
  const char* make;
  const char* end;
};
constexpr Pair pairs[] = {{"cuCtxCreate_v2", "cuCtxDestroy_v2"},
                          {"cuGreenCtxCreate", "cuGreenCtxDestroy"},
                          {"cuStreamCreate", "cuStreamDestroy_v2"},
                          {"cuEventCreate", "cuEventDestroy_v2"},
                          {"cuMemAlloc_v2", "cuMemFree_v2"},
                          {"cuMemPoolCreate", "cuMemPoolDestroy"},
                          {"cuMemAllocFromPoolAsync", "cuMemFreeAsync"},
                          {"cuMemCreate", "cuMemRelease"},
                          {"cuMemMap", "cuMemUnmap"},
                          {"cuMemAddressReserve", "cuMemAddressFree"},
                          {"cuMemHostRegister_v2", "cuMemHostUnregister"},
                          {"cuModuleLoadDataEx", "cuModuleUnload"},
                          {"cuGraphInstantiateWithFlags", "cuGraphExecDestroy"},
                          {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"}};

// Nothing is current when the broker calls these, so that nothing is destroyed when the device says
// so.
constexpr const char* not_true_of[] = {"cuCtxPushCurrent_v2", "cuStreamSynchronize", "cuEventQuery",
                                       "cuEventSynchronize"};

// One life of the driver in which one call fails, or none.
class Life {
 public:
  Life(const SoftwareControls& controls, const RawDriver& driver)
      : controls_(controls), driver_(driver) {}

  // `failing` 0: none. Restarts the driver first.
  void live(std::uint64_t failing, CUresult status) {
    controls_.restart();  // refused before the first cuInit, which is as well
    driver_.init();
    own_ = driver_.make_context();  // the host's, current while it works
    controls_.start_counting();
    if (failing != 0) {
      ASSERT_EQ(controls_.fail_call("*", failing, status), 0);
    }
    host.work();
    calls = controls_.call_count("*");
    const char* failed = controls_.failed_call();
    failed_call = failed == nullptr ? "" : failed;
    for (const Pair& pair : pairs) {
      // A make that failed has made nothing.
      const std::uint64_t made = controls_.call_count(pair.make) - (failed_call == pair.make);
      if (made != controls_.call_count(pair.end)) {
        unbalanced += std::string(pair.make) + " " + std::to_string(made) + ", " + pair.end + " " +
                      std::to_string(controls_.call_count(pair.end)) + "; ";
      }
    }
    controls_.stop_counting();
    look_at_the_driver();
  }

  WorkingHost host;
  std::uint64_t calls = 0;
  std::string failed_call;
  std::string unbalanced;  // things that were made and not given back, by counting the calls
  bool ended = false;      // CUDA in this life
  bool primary_is_active = false;
  bool thread_is_as_before = false;
  std::size_t free_memory = 0;  // bytes on the device, as long as CUDA has not ended

 private:
  void look_at_the_driver() {
    thread_is_as_before = driver_.stack() == std::vector<CUcontext>{own_};
    driver_.pop_all();
    primary_is_active = driver_.primary_is_active(0);
    try {
      const Entered inside(driver_, driver_.retain_primary(0));
      free_memory = driver_.free_memory();
    } catch (const std::runtime_error&) {
      ended = true;
      return;
    }
    driver_.call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  const SoftwareControls& controls_;
  const RawDriver& driver_;
  CUcontext own_ = nullptr;
};

class LoseAnywhereChildTest : public ::testing::Test {
 protected:
  LoseAnywhereChildTest() : path(Broker::open().driver().path), controls(path), driver(path) {}

  void sweep(CUresult status);
  void judge(const Life& life, CUresult status);
  static void judge_out_of_memory(const Life& life);
  static void judge_ended(const Life& life);
  static void judge_destroyed(const Life& life);

  const std::string path;
  SoftwareControls controls;
  RawDriver driver;
  ProcessState before;
  std::size_t free_before = 0;
};

// Refused, what such a call should have given back stays: that cannot be helped, but is said.
bool gives_back(const std::string& call) {
  const auto same = [&](const Pair& pair) { return call == pair.end; };
  return std::any_of(std::begin(pairs), std::end(pairs), same);
}

bool is_among(std::span<const char* const> calls, const std::string& call) {
  return std::find(calls.begin(), calls.end(), call) != calls.end();
}

std::size_t count_of(const WorkingHost& host, Severity least) {
  const auto grave = [&](const Record& record) { return record.severity >= least; };
  const auto& records = host.records();
  return static_cast<std::size_t>(std::count_if(records.begin(), records.end(), grave));
}

void LoseAnywhereChildTest::judge(const Life& life, CUresult status) {
  EXPECT_THAT(life.host.left(), IsEmpty());
  EXPECT_EQ(life.host.wrong_jobs(), 0);
  EXPECT_TRUE(life.thread_is_as_before);
  if (life.ended) {
    EXPECT_EQ(status, CUDA_ERROR_ILLEGAL_ADDRESS);
    judge_ended(life);
    return;
  }
  // Every plug-in works in the end.
  EXPECT_EQ(life.host.right_jobs(), WorkingHost::jobs);
  const bool all_back = !life.primary_is_active && life.free_memory == free_before;
  if (gives_back(life.failed_call)) {
    EXPECT_TRUE(all_back || count_of(life.host, Severity::warning) > 0) << "nobody knows of it";
  } else if (status != CUDA_ERROR_CONTEXT_IS_DESTROYED ||
             !is_among(not_true_of, life.failed_call)) {
    EXPECT_FALSE(life.primary_is_active);
    EXPECT_EQ(life.free_memory, free_before);
  }
  if (status == CUDA_ERROR_OUT_OF_MEMORY) judge_out_of_memory(life);
  if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED) judge_destroyed(life);
}

// Whatever fails, it is only that: one error or one warning, and nobody's lease ends.
void LoseAnywhereChildTest::judge_out_of_memory(const Life& life) {
  if (!gives_back(life.failed_call)) {  // it may have been tried again
    EXPECT_EQ(life.unbalanced, "");
  }
  EXPECT_LE(life.host.errors().size(), 1u);
  EXPECT_EQ(count_of(life.host, Severity::error), 0u);
  EXPECT_LE(count_of(life.host, Severity::warning), 1u);
  EXPECT_THAT(life.host.renewed(), IsEmpty());
}

// One error that says what happened; from then on everything is refused with the same words.
void LoseAnywhereChildTest::judge_ended(const Life& life) {
  auto errors = life.host.errors();
  // Brokers that could not be opened know nothing of each other.
  while (errors.size() > 1 && errors[0].step == "open") errors.erase(errors.begin());
  for (std::size_t i = 1; i < errors.size(); ++i) {
    EXPECT_TRUE(errors[i].says_that_cuda_has_ended()) << errors[i].step << ": " << errors[i].text;
  }
  if (!errors.empty()) {
    EXPECT_THAT(errors[0].text, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  EXPECT_LE(count_of(life.host, Severity::error), 1u);
  if (!errors.empty() && errors[0].step != "open") {  // there was a broker to say it
    EXPECT_EQ(count_of(life.host, Severity::error), 1u) << errors[0].text;
  }
}

// A private context is nobody else's, and a green one goes without the primary.
void LoseAnywhereChildTest::judge_destroyed(const Life& life) {
  const auto& renewed = life.host.renewed();
  if (renewed.count("private") == 1) {
    EXPECT_EQ(renewed.size(), 1u);
  }
  if (renewed.count("shared") == 1) {
    EXPECT_EQ(renewed.count("private"), 0u);
  }
  EXPECT_LE(life.host.errors().size(), 3u);
}

void LoseAnywhereChildTest::sweep(CUresult status) {
  if (!controls) GTEST_SKIP() << "only the software device fails calls when it is told to";
  std::uint64_t calls = 0;
  for (int warm = 0; warm < 2; ++warm) {  // what is made once in a process is no drift
    Life life(controls, driver);
    life.live(0, CUDA_SUCCESS);
    calls = life.calls;
    free_before = life.free_memory;
    EXPECT_EQ(life.host.story(), "");
    EXPECT_EQ(life.unbalanced, "");
    EXPECT_EQ(life.host.right_jobs(), WorkingHost::jobs);
  }
  before = process_state();
  const std::uint64_t step = step_from_environment(), offset = offset_from_environment(step);
  std::cout << calls << " calls; CTXB_LOSE_EVERY=" << step << " CTXB_LOSE_OFFSET=" << offset
            << std::endl;
  for (std::uint64_t failing = 1 + offset; failing <= calls; failing += step) {
    Life life(controls, driver);
    std::cout << "call " << failing << std::flush;
    life.live(failing, status);
    std::cout << " " << life.failed_call << std::endl;
    SCOPED_TRACE("call " + std::to_string(failing) + ", " + life.failed_call + "\n" +
                 life.host.story());
    judge(life, status);
  }
  const ProcessState after = settled_process_state(before.threads);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.descriptors, before.descriptors);
}

TEST_F(LoseAnywhereChildTest, DISABLED_OutOfMemoryInAnyCallLosesNoLease) {
  sweep(CUDA_ERROR_OUT_OF_MEMORY);
}
TEST_F(LoseAnywhereChildTest, DISABLED_IllegalAddressInAnyCallRefusesAllLaterCalls) {
  sweep(CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_F(LoseAnywhereChildTest, DISABLED_DestroyedContextInAnyCallRenewsOnlyItsLeases) {
  sweep(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

class LoseAnywhereTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LoseAnywhereTest, FailureOfAnyDriverCallIsContained) {
  const ChildResult child = run_child(std::string("LoseAnywhereChildTest.DISABLED_") + GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
  if (child.output.find("[  SKIPPED ]") != std::string::npos) {
    GTEST_SKIP() << "only the software device fails calls when it is told to";
  }
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(Statuses, LoseAnywhereTest,
                         ::testing::Values("OutOfMemoryInAnyCallLosesNoLease",
                                           "IllegalAddressInAnyCallRefusesAllLaterCalls",
                                           "DestroyedContextInAnyCallRenewsOnlyItsLeases"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ctxbroker
