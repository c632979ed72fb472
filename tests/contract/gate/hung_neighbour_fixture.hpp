// SPDX-License-Identifier: Apache-2.0
// A tenant with a kernel that hangs, and its neighbour: what the cells of hung_neighbour_test.cpp
// have in common.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "hung_neighbour.hpp"
#include "hung_things.hpp"
#include "support/driver_by_name.hpp"
#include "support/hung_kernel.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline milliseconds asked_or(const char* variable, milliseconds otherwise) {
  const char* asked = std::getenv(variable);
  return asked != nullptr ? milliseconds(std::atoi(asked)) : otherwise;
}

// job_timeout and end_timeout. Healthy work has to stay below it.
#ifdef __SANITIZE_THREAD__
inline const milliseconds timeout = asked_or("CTXBROKER_TEST_TIMEOUT_MS", milliseconds(1500));
#else
inline const milliseconds timeout = asked_or("CTXBROKER_TEST_TIMEOUT_MS", milliseconds(300));
#endif
// A call may take this long beside its timeout. On an idle machine 100 ms are enough.
inline const milliseconds margin = asked_or("CTXBROKER_TEST_MARGIN_MS", milliseconds(2000));
inline constexpr ActivationSizes sizes{512, 512, 0, false};
inline constexpr std::uint64_t bytes =
    512 * 512 * 4 * sizeof(float);  // what plug-in "scratch" takes

class HungNeighbour : public ::testing::TestWithParam<Cell> {
 protected:
  HungNeighbour() : broker(Broker::open(options())) {}

  static BrokerOptions options() {
    BrokerOptions impatient;
    impatient.job_timeout = impatient.end_timeout = timeout;
    impatient.ready.green = std::get<2>(GetParam()) == Call::realtime ? 1 : 0;
    // The driver's own memory is what has to wait for the neighbour and is put off.
    impatient.policy.for_all.memory = with_pools() ? MemorySource::pool : MemorySource::driver;
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
    if (!is_known()) return;
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
        EXPECT_THAT(error.what(), ::testing::HasSubstr("work of tenant guilty"));
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
  static LeaseKind kind() { return std::get<1>(GetParam()); }  // of the neighbour's lease
  static bool is_known() { return std::get<3>(GetParam()); }
  bool in_one_family() const {
    return std::get<0>(GetParam()) != LeaseKind::private_own &&
           std::get<1>(GetParam()) != LeaseKind::private_own;
  }
  static bool with_pools() { return std::getenv(pools_variable) != nullptr; }
  // Memory of a pool of the neighbour's own waits for the neighbour's work alone.
  bool frees_wait() const { return in_one_family() && !with_pools(); }
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
    EXPECT_GE(bytes_put_off(tenant), frees_wait() ? least : 0);
    if (!frees_wait()) {
      EXPECT_EQ(bytes_put_off(tenant), 0U) << "nothing has to wait";
    }
    const std::size_t before = hung.free_memory();
    hung.let_go();
    expect_nothing_put_off();
    if (frees_wait()) {
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
  // The neighbour's lease is lost. It gets another one, or is told in time that it cannot.
  void renew() {
    try {
      innocent->run(0, [] {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable) << error.what();
    }
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
  // Each makes its calls and answers whether the call is one of them: what makes something, what
  // ends something, and what the host or its devices are asked for.
  bool make(Call call);
  bool end(Call call);
  bool use(Call call);

  Broker broker;
  std::optional<Tenant> guilty, innocent;
  CUdeviceptr memory = 0, own = 0;
  CUstream stream = nullptr;
  CUfunction kernel = nullptr;
  HungKernel hung;
};

}  // namespace ctxbroker
