// SPDX-License-Identifier: Apache-2.0
// How things start and end: a host that used CUDA before, brokers that come and go, processes that
// end in the middle. What ends a process, or needs one that nothing has used, runs in a child.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"
#include "support/child_process.hpp"
#include "support/process_state.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class StartChildTest : public BrokerTest {
 protected:
  StartChildTest() : driver(broker.driver().path) {}
  // One life of a broker with all kinds of leases and work in each.
  void open_work_close() {
    Broker again = Broker::open(options());
    float pixel[4] = {1, 2, 3, 4};
    for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
      PluginInstance instance = again.create(again.load(test_plugin("behaviours")), "affine",
                                             {Placement(0), LeaseChoice(kind), 0});
      instance.activate(test_sizes);
      Graph(again, {&instance}, test_sizes).process(pixel, pixel, {});
    }
    again.close();
  }
  RawDriver driver;
};

TEST_F(StartChildTest, DISABLED_AHostThatUsedCudaBeforeKeepsWhatItHad) {
  // Two contexts of its own on the thread, and the primary with flags of its own choice.
  driver.set_primary_flags(0, CU_CTX_SCHED_BLOCKING_SYNC);
  CUcontext const primary = driver.retain_primary(0);
  CUcontext const own = driver.make_context();
  driver.push(primary);
  const auto before = driver.stack();
  {
    Broker second = Broker::open(options());
    EXPECT_THAT(said("device"), Contains(HasSubstr("is in use already, with flags 0x")));
    Tenant tenant = second.open_tenant("filter", {LeaseChoice(LeaseKind::shared)});
    EXPECT_EQ(tenant.lease().context, primary) << "the one that the host has";
    {
      const Guard guard(tenant);
      EXPECT_EQ(driver.stack().size(), 1u);
    }
    EXPECT_EQ(driver.stack(), before);
    tenant.close();
    second.close();
  }
  EXPECT_EQ(driver.stack(), before);
  EXPECT_TRUE(driver.primary_is_active(0));
  EXPECT_EQ(driver.primary_flags(0) & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
  EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS) << "the primary works";
  driver.pop();
  EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS) << "the host's own context too";
  driver.pop();
  driver.destroy_context(own);
  driver.call("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_FALSE(driver.primary_is_active(0));
}

TEST_F(StartChildTest, DISABLED_HundredBrokersLeaveNoThreadDescriptorOrMemory) {
  for (int warm = 0; warm < 10; ++warm) open_work_close();
  const ProcessState before = process_state();
  const std::size_t heap = mallinfo2().uordblks;
  const int lives = broker.driver().kind == DriverChoice::software ? 100 : 20;
  for (int life = 0; life < lives; ++life) open_work_close();
  EXPECT_FALSE(driver.primary_is_active(0));
  const ProcessState after = settled_process_state(before.threads);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  // The software device keeps a little of every context, so that stale handles are recognised.
  EXPECT_LE(mallinfo2().uordblks, heap + static_cast<std::size_t>(lives) * 16384);
}

TEST_F(StartChildTest, DISABLED_ExitInsideAGuardIsClean) {
  static Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::green)});
  const Guard outer(tenant);
  const Guard inner(tenant);
  std::printf("exits inside\n");
  std::exit(0);
}

TEST_F(StartChildTest, DISABLED_ExitWithOtherThreadsInsideIsClean) {
  // Nothing here ends before the process.
  auto* tenants = new std::vector<Tenant>;
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    tenants->push_back(broker.open_tenant(to_string(kind), {LeaseChoice(kind)}));
  }
  auto* inside = new std::atomic<int>{0};
  for (Tenant& tenant : *tenants) {
    std::thread([&tenant, inside] {  // stays inside
      const Guard guard(tenant);
      ++*inside;
      for (;;) std::this_thread::sleep_for(std::chrono::seconds(60));
    })
        .detach();
    std::thread([&tenant, inside] {  // goes in and out, also while the process ends
      for (bool first = true;; first = false) {
        try {
          const Guard guard(tenant);
          if (first) ++*inside;
        } catch (const Error&) {  // at the very end the driver refuses
          std::this_thread::sleep_for(std::chrono::seconds(60));
        }
      }
    })
        .detach();
  }
  while (*inside < 6) std::this_thread::yield();
  std::printf("exits inside\n");
  std::exit(0);
}

TEST_F(StartChildTest, DISABLED_ExitWithAnActivePluginAndItsGraphIsClean) {
  static PluginInstance instance = active("affine");
  auto* graph = new Graph(broker, {&instance}, test_sizes);
  float pixel[4] = {};
  graph->process(pixel, pixel, {});
  std::printf("exits with all alive\n");
  std::exit(0);
}

ChildResult in_a_child(const std::string& test) {
  // The tests leave objects alive on purpose, so leaks are not reported.
  return run_child("StartChildTest.DISABLED_" + test, {{"LSAN_OPTIONS", "detect_leaks=0"}});
}

class StartTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StartTest, ChildTestPasses) {
  const ChildResult child = in_a_child(GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(HowThingsStart, StartTest,
                         ::testing::Values("AHostThatUsedCudaBeforeKeepsWhatItHad",
                                           "HundredBrokersLeaveNoThreadDescriptorOrMemory"),
                         [](const auto& test) { return std::string(test.param); });

class ExitTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExitTest, ExitWithoutCleanUpIsNoError) {
  const ChildResult child = in_a_child(GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("exits "));
}

INSTANTIATE_TEST_SUITE_P(HowThingsEnd, ExitTest,
                         ::testing::Values("ExitInsideAGuardIsClean",
                                           "ExitWithOtherThreadsInsideIsClean",
                                           "ExitWithAnActivePluginAndItsGraphIsClean"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(BrokerTest, ATenantThatEndsWhileAThreadIsInsideLeavesThatThreadAlone) {
  const RawDriver driver(broker.driver().path);
  std::atomic<int> step{0};
  CUcontext seen = nullptr;
  std::thread other;
  {
    Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::green)});
    other = std::thread([&] {
      {
        const Guard guard(tenant);
        step = 1;
        while (step != 2) std::this_thread::yield();
        seen = driver.current();
      }
      step = driver.current() == nullptr ? 3 : -1;
    });
    while (step != 1) std::this_thread::yield();
  }  // a destructor cannot refuse
  step = 2;
  other.join();
  EXPECT_EQ(step, 3);
  EXPECT_NE(seen, nullptr);
  EXPECT_THAT(said("tenant"), Contains(HasSubstr("while a thread is inside")));
}

// Two hosts in one process, each with its own copy of the library.
TEST_F(BrokerTest, ASecondCopyOfTheLibraryWorksBesideTheFirst) {
  Dl_info first{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&ctxb_broker_open), &first), 0);
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("ctxbroker_copy_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto copy = folder / "libctxbroker_of_another_host.so";
  std::filesystem::copy_file(first.dli_fname, copy);
  if (broker.driver().kind == DriverChoice::software) {  // it looks beside itself
    std::filesystem::create_directory(folder / "ctxbroker");
    std::filesystem::create_symlink(broker.driver().path,
                                    folder / "ctxbroker/libctxbroker_software_device.so");
  }
  void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto look_up = [&](auto* first_ones, const char* name) {
    auto* found = reinterpret_cast<decltype(first_ones)>(dlsym(library, name));
    EXPECT_NE(found, first_ones);
    return found;
  };
  auto* open = look_up(&ctxb_broker_open, "ctxb_broker_open");
  auto* close = look_up(&ctxb_broker_close, "ctxb_broker_close");
  auto* open_tenant = look_up(&ctxb_tenant_open, "ctxb_tenant_open");
  auto* close_tenant = look_up(&ctxb_tenant_close, "ctxb_tenant_close");
  auto* enter = look_up(&ctxb_tenant_enter, "ctxb_tenant_enter");
  auto* leave = look_up(&ctxb_guard_leave, "ctxb_guard_leave");
  auto* last_error = look_up(&ctxb_last_error, "ctxb_last_error");

  const RawDriver driver(broker.driver().path);
  Tenant ours = broker.open_tenant("ours", {LeaseChoice(LeaseKind::private_own)});
  {
    const Guard guard(ours);
    CUcontext const inside_ours = driver.current();
    ctxb_broker* second = nullptr;
    ASSERT_EQ(open(nullptr, &second), CTXB_OK) << last_error();
    ctxb_tenant* theirs = nullptr;
    ASSERT_EQ(open_tenant(second, "theirs", nullptr, &theirs), CTXB_OK) << last_error();
    for (int round = 0; round < 2; ++round) {
      ctxb_guard other;
      ASSERT_EQ(enter(theirs, 0, "render", &other), CTXB_OK) << last_error();
      EXPECT_NE(driver.current(), inside_ours);
      {
        const Guard again(ours);  // nested in the other copy's, of which this one knows nothing
        EXPECT_EQ(driver.current(), inside_ours);
      }
      EXPECT_NE(driver.current(), inside_ours);
      leave(&other);
      EXPECT_EQ(driver.current(), inside_ours);
    }
    EXPECT_EQ(close_tenant(theirs), CTXB_OK) << last_error();
    EXPECT_EQ(close(second), CTXB_OK) << last_error();
  }
  EXPECT_EQ(driver.current(), nullptr);
  EXPECT_EQ(ours.strikes(), 0u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ctxbroker
