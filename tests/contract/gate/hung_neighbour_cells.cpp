// SPDX-License-Identifier: Apache-2.0
// A tenant's kernel hangs, and its neighbour makes one call. Each test runs in a child, because a
// call that hangs would end the suite: hung_neighbour_test.cpp starts them.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "hung_neighbour.hpp"
#include "hung_things.hpp"
#include "support/driver_by_name.hpp"
#include "support/hung_kernel.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

milliseconds asked_or(const char* variable, milliseconds otherwise) {
  const char* asked = std::getenv(variable);
  return asked != nullptr ? milliseconds(std::atoi(asked)) : otherwise;
}

// job_timeout and end_timeout. Healthy work has to stay below it.
#ifdef __SANITIZE_THREAD__
const milliseconds timeout = asked_or("CTXBROKER_TEST_TIMEOUT_MS", milliseconds(1500));
#else
const milliseconds timeout = asked_or("CTXBROKER_TEST_TIMEOUT_MS", milliseconds(300));
#endif
// A call may take this long beside its timeout. On an idle machine 100 ms are enough.
const milliseconds margin = asked_or("CTXBROKER_TEST_MARGIN_MS", milliseconds(2000));
constexpr ActivationSizes sizes{512, 512, 0, false};
constexpr std::uint64_t bytes = 512 * 512 * 4 * sizeof(float);  // what plug-in "scratch" takes

class HungNeighbour : public ::testing::TestWithParam<Cell> {
 protected:
  HungNeighbour() : broker(Broker::open(options())) {}

  static BrokerOptions options() {
    BrokerOptions impatient;
    impatient.job_timeout = impatient.end_timeout = timeout;
    return impatient;
  }
  void SetUp() override {
    hung.let_go_after(std::chrono::seconds(15));
    guilty = broker.open_tenant("guilty", {LeaseChoice(std::get<0>(GetParam()))});
    innocent = broker.open_tenant("innocent", {LeaseChoice(std::get<1>(GetParam()))});
    memory = innocent->allocate(bytes);
    innocent->run(0, [&] { EXPECT_EQ(driver_call("cuMemAlloc_v2", &own, bytes), CUDA_SUCCESS); });
    stream = guilty->create_stream();
    guilty->run(0, [&] {
      kernel = hung.load();
      hung.launch(kernel, stream, hung.open());
      ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    });
  }
  // The kernel hangs from now on.
  void hang() {
    guilty->run(0, [&] { hung.launch(kernel, stream, hung.held()); });
    if (!std::get<3>(GetParam())) return;
    guilty->close();
    const std::vector<LeaseInfo> leases = broker.leases();
    EXPECT_TRUE(std::any_of(leases.begin(), leases.end(), [](const LeaseInfo& one) {
      return one.tenant_name == "guilty" && one.state == LeaseState::hung;
    }));
  }

  // `more`: what the call does once it waits no longer.
  template <typename Work>
  void expect_in_time(Work&& work, milliseconds more = milliseconds::zero()) {
    ASSERT_TRUE(hung.is_held());
    const Clock::time_point begin = Clock::now();
    work();
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    EXPECT_LT(took, timeout + margin + more);
    EXPECT_TRUE(hung.is_held()) << "it waited for the end";
    std::cout << took_text << took.count() << '\n';
  }
  // The call is answered in time: with an error that names the guilty one, if it is to be refused.
  template <typename Work>
  void expect_answer(bool refused, Work&& work) {
    const auto answer = [&] {
      try {
        work();
        EXPECT_FALSE(refused) << "it was done";
      } catch (const Error& error) {
        EXPECT_TRUE(refused) << error.what();
        EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("work of tenant guilty"));
      }
    };
    expect_in_time(answer, making_a_context(std::get<1>(GetParam())));
  }
  // NVIDIA's driver takes 180 to 450 ms to make a private context.
  static milliseconds making_a_context(LeaseKind kind) {
    const bool takes_long = kind == LeaseKind::private_own && !driver_is_software();
    return milliseconds(takes_long ? 500 : 0);
  }
  // It is refused while the kernel hangs, and works when that has ended.
  template <typename Work>
  void expect_answer_and_success_later(bool refused, Work&& work) {
    expect_answer(refused, work);
    hung.let_go();
    if (!refused) return;
    bool done = false;
    EXPECT_TRUE(eventually([&] {
      try {
        if (!done) work();
        done = true;
      } catch (const Error&) {
        return false;
      }
      return done;
    }));
  }
  bool in_one_family() const {
    return std::get<0>(GetParam()) != LeaseKind::private_own &&
           std::get<1>(GetParam()) != LeaseKind::private_own;
  }
  std::uint64_t bytes_put_off(const std::string& tenant) {
    std::uint64_t sum = 0;
    for (const PutOffMetrics& one : broker.metrics().put_off) {
      if (one.tenant_name != tenant) continue;
      EXPECT_GE(one.count, 1U);
      EXPECT_FALSE(one.what.empty());
      sum += one.bytes;
    }
    return sum;
  }
  template <typename Condition>
  static bool eventually(Condition&& holds) {
    const auto latest = Clock::now() + std::chrono::seconds(10);
    while (!holds() && Clock::now() < latest) std::this_thread::sleep_for(milliseconds(1));
    return holds();
  }
  void expect_nothing_put_off() {
    EXPECT_TRUE(eventually([&] { return broker.metrics().put_off.empty(); }));
  }
  // What has just ended is listed where it has to wait, and comes back when the kernel ends.
  void expect_put_off(const std::string& tenant, std::uint64_t least) {
    EXPECT_GE(bytes_put_off(tenant), in_one_family() ? least : 0);
    if (!in_one_family()) {
      EXPECT_EQ(bytes_put_off(tenant), 0U) << "nothing has to wait";
    }
    const std::size_t before = hung.free_memory();
    hung.let_go();
    expect_nothing_put_off();
    if (in_one_family()) {
      EXPECT_GE(hung.free_memory(), before + least);
    }
  }
  PluginInstance idle_plugin(const char* library, const char* id, const LeaseChoice& lease) {
    return broker.create(broker.load(test_library(library)), id, {Placement(0), lease, 0});
  }
  PluginInstance plugin(const char* library, const char* id) {
    PluginInstance instance = idle_plugin(library, id, LeaseChoice(std::get<1>(GetParam())));
    instance.activate(sizes);
    return instance;
  }
  void load_module() {
    expect_in_time([&] {
      innocent->run(0, [&] {
        CUmodule module = nullptr;
        EXPECT_EQ(driver_call("cuModuleLoadData", &module, static_cast<const void*>(hold_ptx)),
                  in_one_family() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
      });
    });
  }
  // The calls that make something.
  void make(Call call);

  Broker broker;
  std::optional<Tenant> guilty, innocent;
  CUdeviceptr memory = 0, own = 0;
  CUstream stream = nullptr;
  CUfunction kernel = nullptr;
  HungKernel hung;
};

// The driver makes no green context and loads no module beside the hung kernel.
void HungNeighbour::make(Call call) {
  const LeaseChoice kind(std::get<1>(GetParam()));
  const bool green_meets = in_one_family() && kind.kind == LeaseKind::green;
  std::optional<PluginInstance> made;
  switch (call) {
    case Call::load:
      hang();
      expect_in_time([&] { static_cast<void>(broker.load(test_library("behaviours_twin"))); });
      break;
    case Call::create:
      hang();
      expect_answer_and_success_later(
          green_meets, [&] { made.emplace(idle_plugin("behaviours_twin", "scratch", kind)); });
      break;
    case Call::create_automatically: {
      hang();
      expect_in_time([&] { made.emplace(idle_plugin("behaviours_twin", "scratch", {})); },
                     making_a_context(LeaseKind::private_own));
      const bool meets = std::get<0>(GetParam()) != LeaseKind::private_own;
      EXPECT_EQ(made->lease().granted.kind, meets ? LeaseKind::private_own : LeaseKind::green);
      if (meets) {
        EXPECT_THAT(made->lease().reason, HasSubstr("private, because work of tenant guilty"));
      }
      expect_in_time([&] { made->activate(sizes); });
      std::vector<float> pixel(4, 1.F);
      Graph graph(broker, {&*made}, sizes);
      expect_in_time([&] { graph.process(pixel.data(), pixel.data(), {}); });
      break;
    }
    case Call::activate:
      made.emplace(idle_plugin("behaviours_twin", "scratch", kind));
      hang();
      expect_answer_and_success_later(in_one_family(), [&] { made->activate(sizes); });
      break;
    case Call::module_on_first_use: {
      made.emplace(plugin("behaviours_twin", "first_use"));
      std::vector<float> pixel(4, 1.F);
      Graph graph(broker, {&*made}, sizes);
      hang();
      expect_in_time([&] {
        try {
          graph.process(pixel.data(), pixel.data(), {});
          EXPECT_FALSE(in_one_family());
        } catch (const Error& error) {
          EXPECT_TRUE(in_one_family()) << error.what();
          EXPECT_THAT(error.what(), HasSubstr("work of tenant guilty"));
        }
      });
      EXPECT_EQ(made->lease().state, LeaseState::ready);
      break;
    }
    case Call::first_run: {
      Tenant late = broker.open_tenant("late", {kind});
      hang();
      expect_answer_and_success_later(green_meets, [&] { late.run(0, [] {}); });
      break;
    }
    case Call::second_thread: {
      hang();
      innocent->run(0, [&] {
        // It works in the context that is there, and needs no other.
        std::jthread([&] { expect_answer(false, [&] { innocent->run(0, [] {}); }); }).join();
      });
      break;
    }
    case Call::allocate:
      hang();
      expect_in_time([&] { EXPECT_NE(innocent->allocate(bytes), 0U); });
      expect_in_time([&] { EXPECT_NE(innocent->create_stream(), nullptr); });
      expect_in_time([&] {
        innocent->run(0, [] {
          void* pinned = nullptr;
          CUdeviceptr device = 0;
          EXPECT_EQ(driver_call("cuMemAllocHost_v2", &pinned, std::size_t{4096}), CUDA_SUCCESS);
          EXPECT_EQ(driver_call("cuMemAlloc_v2", &device, bytes), CUDA_SUCCESS);
        });
      });
      break;
    case Call::module_of_its_own:
      hang();
      load_module();
      break;
    case Call::module_beside_a_capture: {
      Tenant third = broker.open_tenant("third", {kind});
      const CaptureElsewhere capture(third);
      hang();
      load_module();
      break;
    }
    case Call::green_of_its_own: {
      CUdevResource whole{};
      CUdevResourceDesc described = nullptr;
      innocent->run(0, [&] {
        EXPECT_EQ(driver_call("cuDeviceGetDevResource", CUdevice{0}, &whole,
                              CUdevResourceType{CU_DEV_RESOURCE_TYPE_SM}),
                  CUDA_SUCCESS);
        EXPECT_EQ(driver_call("cuDevResourceGenerateDesc", &described, &whole, 1U), CUDA_SUCCESS);
      });
      hang();
      expect_in_time([&] {
        innocent->run(0, [&] {
          CUgreenCtx green = nullptr;
          const bool meets = std::get<0>(GetParam()) != LeaseKind::private_own;
          EXPECT_EQ(driver_call("cuGreenCtxCreate", &green, described, CUdevice{0},
                                unsigned{CU_GREEN_CTX_DEFAULT_STREAM}),
                    meets ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
        });
      });
      break;
    }
    default:  // poll
      hang();
      expect_in_time([&] { broker.poll(); });
      expect_in_time([&] { EXPECT_FALSE(broker.leases().empty()); });
      break;
  }
}

TEST_P(HungNeighbour, DISABLED_CallIsAnsweredInTime) {
  std::vector<float> pixel(4, 1.F);
  std::optional<PluginInstance> scratch;
  switch (std::get<2>(GetParam())) {
    default:
      make(std::get<2>(GetParam()));
      break;
    case Call::process: {
      scratch = plugin("behaviours_twin", "scratch");
      Graph graph(broker, {&*scratch}, sizes);
      graph.process(pixel.data(), pixel.data(), {});
      hang();
      expect_in_time([&] { graph.process(pixel.data(), pixel.data(), {}); });
      EXPECT_EQ(scratch->lease().state, LeaseState::ready);
      hung.let_go();
      break;
    }
    case Call::deactivate:
      scratch = plugin("behaviours_twin", "scratch");
      hang();
      expect_in_time([&] { scratch->deactivate(); });
      EXPECT_EQ(scratch->lease().state, LeaseState::ready);
      expect_put_off("behaviours_twin", bytes);
      break;
    case Call::destroy:
      scratch = plugin("behaviours_twin", "scratch");
      hang();
      expect_in_time([&] { scratch.reset(); });
      expect_put_off("behaviours_twin", bytes);
      break;
    case Call::unload_library:
      scratch = plugin("behaviours_unloadable", "scratch");
      hang();
      expect_in_time([&] { scratch.reset(); });  // its library's last
      expect_put_off("behaviours_unloadable", bytes);
      break;
    case Call::release:
      hang();
      expect_in_time([&] { innocent->release(memory); });
      EXPECT_EQ(innocent->memory_bytes(), in_one_family() ? bytes : 0) << "it stays counted";
      expect_put_off("innocent", bytes);
      EXPECT_EQ(innocent->memory_bytes(), 0U);
      break;
    case Call::free_of_its_own:
      hang();
      expect_in_time([&] {
        EXPECT_EQ(innocent->run(0, [&] { return driver_call("cuMemFree_v2", own); }), CUDA_SUCCESS);
      });
      expect_put_off("innocent", bytes);
      break;
    case Call::other_ends_of_its_own: {
      const auto things = std::make_unique<Things>();
      innocent->run(0, [&] { things->make(); });
      hang();
      expect_in_time([&] { innocent->run(0, [&] { things->end(); }); });
      hung.let_go();
      expect_nothing_put_off();
      break;
    }
    case Call::synchronize: {
      hang();
      // Of a shared lease the context is that of all; a green one is waited for alone.
      const bool meets = in_one_family() && std::get<1>(GetParam()) == LeaseKind::shared;
      expect_in_time([&] {
        EXPECT_EQ(innocent->run(0, [] { return driver_call("cuCtxSynchronize"); }),
                  meets ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
      });
      if (meets && broker.driver().version >= 13000) {  // null is the current context, too
        expect_in_time([&] {
          EXPECT_EQ(
              innocent->run(0, [] { return driver_call("cuCtxSynchronize_v2", CUcontext{}); }),
              CUDA_ERROR_NOT_READY);
        });
      }
      hung.let_go();
      break;
    }
    case Call::close_tenant:
      hang();
      expect_in_time([&] { innocent->close(); });
      expect_put_off("innocent", 2 * bytes);
      break;
    case Call::close_tenant_with_a_context:
      innocent->run(0, [] {
        CUcontext made = nullptr;
        EXPECT_EQ(driver_call("cuCtxCreate_v2", &made, 0U, CUdevice{0}), CUDA_SUCCESS);
        EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &made), CUDA_SUCCESS);
      });
      hang();
      expect_in_time([&] { innocent->close(); });
      // A shared lease has no context of its own that could be put off.
      if (std::get<1>(GetParam()) == LeaseKind::shared && std::get<3>(GetParam())) {
        const std::vector<PutOffMetrics> put_off = broker.metrics().put_off;
        EXPECT_TRUE(std::any_of(put_off.begin(), put_off.end(), [](const PutOffMetrics& one) {
          return one.tenant_name == "innocent" && one.what == "context";
        }));
      }
      hung.let_go();
      expect_nothing_put_off();
      break;
    case Call::close_broker: {
      hang();
      innocent->close();
      guilty->close();
      innocent.reset();
      guilty.reset();
      const std::size_t before = hung.free_memory();
      expect_in_time([&] { broker.close(); });
      hung.let_go();
      if (in_one_family()) {
        EXPECT_TRUE(eventually([&] { return hung.free_memory() >= before + 2 * bytes; }));
      }
      break;
    }
  }
  scratch.reset();
  hung.let_go();
  hung.stop_watching();
  EXPECT_EQ(hung.synchronize(), CUDA_SUCCESS);
}

// The control: the host calls the driver itself, and nothing stands between.
TEST_P(HungNeighbour, DISABLED_DriverAloneWaitsForTheHungNeighbour) {
  CUcontext context = nullptr;
  innocent->run(0, [&] { EXPECT_EQ(driver_call("cuCtxGetCurrent", &context), CUDA_SUCCESS); });
  hang();
  auto freed = std::async(std::launch::async, [&] { return driver_call("cuMemFree_v2", own); });
  auto loaded = std::async(std::launch::async, [&] {
    CUmodule module = nullptr;
    EXPECT_EQ(driver_call("cuCtxPushCurrent_v2", context), CUDA_SUCCESS);
    const CUresult status =
        driver_call("cuModuleLoadData", &module, static_cast<const void*>(hold_ptx));
    EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &context), CUDA_SUCCESS);
    return status;
  });
  const auto waits = [&](std::future<CUresult>& call) {
    return call.wait_for(timeout + milliseconds(500)) == std::future_status::timeout;
  };
  EXPECT_EQ(waits(freed), in_one_family());
  EXPECT_EQ(waits(loaded), in_one_family());
  EXPECT_TRUE(hung.is_held());
  hung.let_go();
  EXPECT_EQ(freed.get(), CUDA_SUCCESS);
  EXPECT_EQ(loaded.get(), CUDA_SUCCESS);
  hung.stop_watching();
}

// A wait for the primary begins before anybody knows that something hangs there.
TEST_P(HungNeighbour, DISABLED_WaitThatHasBegunIsAnsweredWhenTheHangIsKnown) {
  hang();
  auto waited = std::async(std::launch::async, [&] {
    return innocent->run(0, [] { return driver_call("cuCtxSynchronize"); });
  });
  if (in_one_family()) {
    EXPECT_EQ(waited.wait_for(timeout + milliseconds(200)), std::future_status::timeout)
        << "it may be long work of its own";
  }
  guilty->close();
  EXPECT_EQ(waited.wait_for(timeout + margin), std::future_status::ready);
  EXPECT_TRUE(hung.is_held());
  EXPECT_EQ(waited.get(), in_one_family() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
  hung.let_go();
  expect_nothing_put_off();
  EXPECT_EQ(innocent->run(0, [] { return driver_call("cuCtxSynchronize"); }), CUDA_SUCCESS);
  hung.stop_watching();
}

// The objects of tenants that are closed may end after the broker.
TEST_P(HungNeighbour, DISABLED_HungWorkThatEndsBeforeTheBrokerIsGivenBack) {
  hang();
  guilty->close();
  innocent->close();
  hung.let_go();
  expect_nothing_put_off();
  broker.close();
  guilty.reset();
  innocent.reset();
  hung.stop_watching();
}

// What the guilty one frees itself has to wait for its own kernel.
TEST_P(HungNeighbour, DISABLED_GuiltyTenantIsAnsweredInTime) {
  CUdeviceptr guiltys = 0;
  guilty->run(0, [&] { EXPECT_EQ(driver_call("cuMemAlloc_v2", &guiltys, bytes), CUDA_SUCCESS); });
  guilty->run(0, [&] { hung.launch(kernel, stream, hung.held()); });
  expect_in_time([&] {
    EXPECT_EQ(guilty->run(0, [&] { return driver_call("cuMemFree_v2", guiltys); }), CUDA_SUCCESS);
  });
  EXPECT_EQ(bytes_put_off("guilty"), bytes);
  expect_in_time([&] { guilty->close(); });
  hung.let_go();
  expect_nothing_put_off();
  hung.stop_watching();
}

const auto cell_of = [](const auto& test) { return cell_name(test.param); };

INSTANTIATE_TEST_SUITE_P(Cells, HungNeighbour,
                         ::testing::Combine(::testing::ValuesIn(kinds), ::testing::ValuesIn(kinds),
                                            ::testing::ValuesIn(calls), ::testing::Bool()),
                         cell_of);

}  // namespace
}  // namespace ctxbroker
