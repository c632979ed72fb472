// SPDX-License-Identifier: Apache-2.0
// A tenant's library is unloaded at its close while the driver has still to call a function of it.
// Without the gate, nobody knows of that function, and the process ends with SIGSEGV. Each case in
// a child process.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;

enum class Way {
  own_stream,    // which is destroyed before the close
  add_callback,  // the same, by cuStreamAddCallback
  neighbours_stream,
  legacy_stream,
  per_thread_stream,
  graph,        // a node of a graph, which is destroyed before the close
  user_object,  // its destructor
  too_long      // own_stream, but the function does not run within end_timeout
};
constexpr const char* way_names[] = {"own_stream",    "add_callback",      "neighbours_stream",
                                     "legacy_stream", "per_thread_stream", "graph",
                                     "user_object",   "too_long"};

struct Case {
  LeaseKind kind;
  Way way;
  bool with_gate;
};
std::string name_of(const Case& one) {
  return std::string(to_string(one.kind)) + "_" + way_names[static_cast<int>(one.way)] +
         (one.with_gate ? "" : "_without_gate");
}

// The data of the functions that the driver calls. The test waits until `done` is set.
struct Progress {
  std::atomic<bool> go_on{false};
  std::atomic<int> done{0};
};
void hold(void* progress) {
  while (!static_cast<Progress*>(progress)->go_on) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

class Unloading : public ::testing::TestWithParam<Case> {
 protected:
  Unloading() : broker(Broker::open(options())) {}

  BrokerOptions options() {
    BrokerOptions all;
    all.records = [this](const Record& record) { said.push_back(record.text); };
    all.use_gate = GetParam().with_gate;
    all.end_timeout = milliseconds(is_late() ? 100 : 20000);
    return all;
  }
  void SetUp() override {
    if (!GetParam().with_gate) driver_look_up = look_up_past_gate;
    driver = dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  }
  static void* look_up_past_gate(const char* symbol) { return dlsym(driver, symbol); }
  // The driver calls the function only after the close.
  static bool is_late() {
    return GetParam().way == Way::too_long || GetParam().way == Way::user_object;
  }
  Tenant open(const char* name) {
    TenantOptions options{LeaseChoice(GetParam().kind)};
    options.unload_at_close = true;
    return broker.open_tenant(name, options);
  }
  bool is_loaded() const {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) dlclose(library);  // this call's count only
    return library != nullptr;
  }
  CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING}),
              CUDA_SUCCESS);
    return stream;
  }
  CUresult launch(CUstream stream, void* function, void* data) {
    return driver_call("cuLaunchHostFunc", stream, reinterpret_cast<CUhostFn>(function), data);
  }
  void destroy(CUstream stream) {
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  }
  void launch_in_graph(CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    EXPECT_EQ(launch(stream, function, &progress->done), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL), CUDA_SUCCESS);
    EXPECT_EQ(launch(stream, reinterpret_cast<void*>(hold), progress), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphLaunch", exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphExecDestroy", exec), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
  }
  // Enqueues `hold` and a function of the tenant's library, as the tenant's code would. Returns
  // false if the driver has refused one of them.
  bool enqueue(CUstream stream) {
    if (launch(stream, reinterpret_cast<void*>(hold), progress) != CUDA_SUCCESS) return false;
    if (GetParam().way == Way::add_callback) {
      return driver_call("cuStreamAddCallback", stream,
                         reinterpret_cast<CUstreamCallback>(stream_function),
                         static_cast<void*>(&progress->done), 0U) == CUDA_SUCCESS;
    }
    return launch(stream, function, &progress->done) == CUDA_SUCCESS;
  }
  bool let_driver_have_it() {
    CUstream stream = nullptr;
    bool taken = true;
    switch (GetParam().way) {
      case Way::own_stream:
      case Way::add_callback:
      case Way::too_long:
        stream = make_stream();
        taken = enqueue(stream);
        destroy(stream);
        break;
      case Way::graph:
        stream = make_stream();
        launch_in_graph(stream);
        destroy(stream);
        break;
      case Way::neighbours_stream:
        return enqueue(neighbours);
      case Way::legacy_stream:
        return enqueue(CU_STREAM_LEGACY);
      case Way::per_thread_stream:
        return enqueue(CU_STREAM_PER_THREAD);
      case Way::user_object:
        return driver_call("cuUserObjectCreate", &object, static_cast<void*>(&progress->done),
                           reinterpret_cast<CUhostFn>(function), 1U,
                           unsigned{CU_USER_OBJECT_NO_DESTRUCTOR_SYNC}) == CUDA_SUCCESS;
    }
    return taken;
  }

  static inline void* driver = nullptr;
  std::vector<std::string> said;
  Broker broker;
  // The process ends before the driver has done with it where a case fails.
  Progress* const progress = new Progress;
  const std::filesystem::path path = test_library("callback");
  void* function = nullptr;
  void* stream_function = nullptr;
  CUstream neighbours = nullptr;
  CUuserObject object = nullptr;
};

TEST_P(Unloading, DISABLED_TenantClosesWhileTheDriverHoldsItsFunction) {
  const Way way = GetParam().way;
  Tenant neighbour = open("neighbour"), tenant = open("leaves");
  neighbours = neighbour.create_stream();
  {
    const AdoptedLibrary library = tenant.adopt(path);
    function = library.symbol("ctxb_test_callback");
    stream_function = library.symbol("ctxb_test_stream_callback");
  }
  ASSERT_NE(function, nullptr);
  const bool taken = tenant.run(0, [&] { return let_driver_have_it(); });
  // Only a neighbour's stream may be refused.
  ASSERT_TRUE(taken || way == Way::neighbours_stream);
  std::printf("ENQUEUED\n");
  std::fflush(stdout);  // it may be the end of the process
  std::jthread later;
  const auto let_go = [this, way] {
    std::this_thread::sleep_for(milliseconds(300));
    progress->go_on = true;
    if (way == Way::user_object) driver_call("cuUserObjectRelease", object, 1U);
  };
  if (!is_late()) later = std::jthread(let_go);
  tenant.close();
  const bool stays = is_late() || way == Way::graph;
  if (GetParam().with_gate) {
    EXPECT_EQ(is_loaded(), stays);
    EXPECT_TRUE(stays || !taken || progress->done == 1) << "it was not waited for";
    const auto says_why = Contains(HasSubstr("callback.so stays in the process, because "));
    EXPECT_EQ(::testing::Value(said, says_why), stays);
  }
  if (is_late()) later = std::jthread(let_go);
  for (int i = 0; i < 10000 && progress->done == 0 && taken; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(progress->done, taken ? 1 : 0);
  std::printf("SURVIVED\n");
}

constexpr Case unloadings[] = {{LeaseKind::shared, Way::own_stream, true},
                               {LeaseKind::private_own, Way::own_stream, true},
                               {LeaseKind::green, Way::own_stream, true},
                               {LeaseKind::shared, Way::add_callback, true},
                               {LeaseKind::shared, Way::neighbours_stream, true},
                               {LeaseKind::private_own, Way::neighbours_stream, true},
                               {LeaseKind::green, Way::neighbours_stream, true},
                               {LeaseKind::shared, Way::legacy_stream, true},
                               {LeaseKind::private_own, Way::legacy_stream, true},
                               {LeaseKind::green, Way::legacy_stream, true},
                               {LeaseKind::shared, Way::per_thread_stream, true},
                               {LeaseKind::private_own, Way::per_thread_stream, true},
                               {LeaseKind::shared, Way::graph, true},
                               {LeaseKind::private_own, Way::graph, true},
                               {LeaseKind::green, Way::graph, true},
                               {LeaseKind::shared, Way::user_object, true},
                               {LeaseKind::private_own, Way::user_object, true},
                               {LeaseKind::green, Way::user_object, true},
                               {LeaseKind::shared, Way::too_long, true},
                               {LeaseKind::private_own, Way::too_long, true},
                               {LeaseKind::green, Way::too_long, true},
                               {LeaseKind::shared, Way::own_stream, false},
                               {LeaseKind::private_own, Way::own_stream, false},
                               {LeaseKind::green, Way::own_stream, false},
                               {LeaseKind::shared, Way::add_callback, false},
                               {LeaseKind::shared, Way::neighbours_stream, false},
                               {LeaseKind::shared, Way::legacy_stream, false},
                               {LeaseKind::shared, Way::per_thread_stream, false},
                               {LeaseKind::shared, Way::graph, false},
                               {LeaseKind::shared, Way::user_object, false}};

INSTANTIATE_TEST_SUITE_P(Cases, Unloading, ::testing::ValuesIn(unloadings),
                         [](const auto& test) { return name_of(test.param); });

class UnloadingTest : public ::testing::TestWithParam<Case> {};

TEST_P(UnloadingTest, LibraryStaysLoadedUntilTheDriverHasDoneWithIt) {
  const ChildResult child = run_child(
      "Cases/Unloading.DISABLED_TenantClosesWhileTheDriverHoldsItsFunction/" + name_of(GetParam()),
      {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_THAT(child.output, HasSubstr("ENQUEUED"));
  if (GetParam().with_gate) {
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
  } else {
    EXPECT_NE(child.exit_code, 0) << "the damage that the gate prevents";
    EXPECT_THAT(child.output, ::testing::Not(HasSubstr("SURVIVED")));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, UnloadingTest, ::testing::ValuesIn(unloadings),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace ctxbroker
