// SPDX-License-Identifier: Apache-2.0
// Functions of a tenant's code that the driver calls: what they may not do ends with them, and
// nothing that the gate waits for waits for them.
#include <gmock/gmock.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "host_functions/host_functions.hpp"
#include "rules_fixture.hpp"
#include "support/child_process.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Who calls the function.
enum class Way {
  host_function,
  stream_callback,
  user_object,
  captured,
  host_node,
  any_node,
  in_exec
};
constexpr const char* way_names[] = {"host_function", "stream_callback", "user_object", "captured",
                                     "host_node",     "any_node",        "in_exec"};
constexpr Way ways[] = {Way::host_function, Way::stream_callback, Way::user_object, Way::captured,
                        Way::host_node,     Way::any_node,        Way::in_exec};

using Cell = std::tuple<LeaseKind, Way>;
std::string name_of(const Cell& cell) {
  return std::string(to_string(std::get<0>(cell))) + "_" +
         way_names[static_cast<int>(std::get<1>(cell))];
}

class HostFunctionsTest : public RulesTest, public ::testing::WithParamInterface<Cell> {
 protected:
  HostFunctionsTest()
      : tenant(open(broker, "careless", std::get<0>(GetParam()))),
        neighbour(open(broker, "neighbour", std::get<0>(GetParam()))),
        library(tenant.adopt(test_library("host_functions"))) {
    tenant.run(0, [&] { check_driver_call("cuStreamCreate", &stream, 1U); });
  }
  static Way way() { return std::get<1>(GetParam()); }

  CUhostFn function(const char* name) const {
    return reinterpret_cast<CUhostFn>(library.symbol((std::string("ctxb_test_") + name).c_str()));
  }
  // Lets the driver call the function with `data`, in the tenant's guard.
  void let_driver_call(const char* name) {
    const CUhostFn called = function(name);
    void* const given = &data;
    switch (way()) {
      case Way::host_function:
        check_driver_call("cuLaunchHostFunc", stream, called, given);
        break;
      case Way::stream_callback:
        check_driver_call("cuStreamAddCallback", stream,
                          reinterpret_cast<CUstreamCallback>(
                              library.symbol((std::string("ctxb_stream_") + name).c_str())),
                          given, 0U);
        break;
      case Way::user_object: {
        CUuserObject object = nullptr;
        check_driver_call("cuUserObjectCreate", &object, given, called, 1U,
                          unsigned{CU_USER_OBJECT_NO_DESTRUCTOR_SYNC});
        check_driver_call("cuUserObjectRelease", object, 1U);
        break;
      }
      default:
        launch_graph(called, given);
    }
    wait_until_done(++calls);
  }
  void launch_graph(CUhostFn called, void* given) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    CUDA_HOST_NODE_PARAMS params{called, given};
    const auto* const no_nodes = static_cast<const CUgraphNode*>(nullptr);
    const CUDA_HOST_NODE_PARAMS* const its = &params;
    if (way() == Way::captured) {
      check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      check_driver_call("cuLaunchHostFunc", stream, called, given);
      check_driver_call("cuStreamEndCapture", stream, &graph);
    } else {
      check_driver_call("cuGraphCreate", &graph, 0U);
      if (way() == Way::in_exec) params = {function("count"), given};
      if (way() == Way::any_node) {
        CUgraphNodeParams any{};
        any.type = CU_GRAPH_NODE_TYPE_HOST;
        any.host = {called, given};
        check_driver_call("cuGraphAddNode", &node, graph, no_nodes, std::size_t{0}, &any);
        EXPECT_EQ(any.host.fn, called);
      } else {
        check_driver_call("cuGraphAddHostNode", &node, graph, no_nodes, std::size_t{0}, its);
      }
      CUDA_HOST_NODE_PARAMS told{};
      check_driver_call("cuGraphHostNodeGetParams", node, &told);
      EXPECT_EQ(told.fn, params.fn) << "the node has the function that it was given";
      EXPECT_EQ(told.userData, given);
    }
    check_driver_call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
    if (way() == Way::in_exec) {
      params.fn = called;
      check_driver_call("cuGraphExecHostNodeSetParams", exec, node, its);
    }
    check_driver_call("cuGraphLaunch", exec, stream);
    static_cast<void>(raw.call("cuStreamSynchronize", stream));
    check_driver_call("cuGraphExecDestroy", exec);
    check_driver_call("cuGraphDestroy", graph);
  }
  void wait_until_done(int count) const {
    for (int i = 0; i < 10000 && data.done < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(data.done, count) << "the driver has not called it";
  }
  // Returns what the tenant's wait for the work is answered.
  CUresult wait_for_work() {
    const bool in_stream = way() == Way::host_function || way() == Way::stream_callback;
    return in_stream ? driver_call("cuStreamSynchronize", stream) : driver_call("cuCtxSynchronize");
  }
  // The driver goes on calling functions of all tenants, and the neighbour's work is not touched.
  void expect_neighbour_unhurt() {
    HostFunctionData its;
    neighbour.run(0, [&] {
      CUstream theirs = nullptr;
      check_driver_call("cuStreamCreate", &theirs, 1U);
      check_driver_call("cuLaunchHostFunc", theirs, function("count"), static_cast<void*>(&its));
      EXPECT_EQ(driver_call("cuStreamSynchronize", theirs), CUDA_SUCCESS);
      check_driver_call("cuStreamDestroy_v2", theirs);
      CUdeviceptr memory = 0;
      const auto begin = steady_clock::now();
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
      EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(1000));
    });
    EXPECT_EQ(its.done, 1);
    EXPECT_EQ(neighbour.strikes(), 0U);
  }

  Tenant tenant, neighbour;
  AdoptedLibrary library;
  CUstream stream = nullptr;
  HostFunctionData data;
  int calls = 0;
};

// The driver itself answers so, and no library has a right to be waited for here.
TEST_P(HostFunctionsTest, CallOfTheDriverIsRefusedAtOnce) {
  tenant.run(0, [&] {
    CUdeviceptr memory = 0;
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
    data.memory = memory;
    const auto begin = steady_clock::now();
    let_driver_call("free");
    EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(1000));
    EXPECT_EQ(data.free_answer, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(data.context_answer, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(data.stream_answer, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(wait_for_work(), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS) << "it is the tenant's as before";
  });
  EXPECT_EQ(held(tenant, "device memory").count, 0U);
  expect_neighbour_unhurt();
  EXPECT_THAT(said(), Contains(HasSubstr("cuMemFree_v2: refused: CUDA forbids calls")));
  EXPECT_THAT(said(), Each(Not(HasSubstr("hang"))));
}

TEST_P(HostFunctionsTest, ExceptionIsStoppedStruckAndFailsTheWork) {
  tenant.run(0, [&] {
    let_driver_call("throw");
    EXPECT_EQ(wait_for_work(), CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(wait_for_work(), CUDA_SUCCESS) << "it is told once";
    let_driver_call("throw_number");
    EXPECT_EQ(wait_for_work(), CUDA_ERROR_UNKNOWN);
  });
  EXPECT_EQ(tenant.strikes(), 2U);
  EXPECT_THAT(said(),
              Contains(HasSubstr("threw an exception: the lens cap is on; it was stopped")));
  expect_neighbour_unhurt();
}

// After it was once stopped, the C library cancels the thread no more. So the first call counts.
TEST_P(HostFunctionsTest, CancellationOfTheThreadIsStopped) {
  tenant.run(0, [&] {
    let_driver_call("count");
    const long thread = data.thread;
    for (int i = 0; i < 2; ++i) {
      let_driver_call("cancel");
      wait_for_work();
    }
    let_driver_call("count");
    if (driver_is_software()) {
      EXPECT_EQ(data.thread, thread) << "it is still there";
    }
  });
  EXPECT_LE(tenant.strikes(), 1U);
  expect_neighbour_unhurt();
}

// A thread that is replaced is another one: the driver's own way out, if it has one. See the
// control below.
TEST_P(HostFunctionsTest, EndOfTheThreadIsStoppedStruckAndFailsTheWork) {
  tenant.run(0, [&] {
    let_driver_call("count");
    const long thread = data.thread;
    for (int i = 0; i < 3; ++i) {
      let_driver_call("exit");
      EXPECT_EQ(wait_for_work(), CUDA_ERROR_UNKNOWN);
      let_driver_call("throw");
      EXPECT_EQ(wait_for_work(), CUDA_ERROR_UNKNOWN) << "exceptions as before";
    }
    let_driver_call("count");
    EXPECT_EQ(wait_for_work(), CUDA_SUCCESS);
    if (driver_is_software()) {
      EXPECT_EQ(data.thread, thread) << "it is still there";
    }
  });
  EXPECT_EQ(tenant.strikes(), 6U);
  EXPECT_THAT(said(), Contains(HasSubstr("ended its thread, which is the driver's")));
  expect_neighbour_unhurt();
}

INSTANTIATE_TEST_SUITE_P(Cells, HostFunctionsTest,
                         ::testing::Combine(::testing::Values(LeaseKind::shared,
                                                              LeaseKind::private_own,
                                                              LeaseKind::green),
                                            ::testing::ValuesIn(ways)),
                         [](const auto& info) { return name_of(info.param); });

// ---- functions of graphs that nobody calls any more ---------------------------------------------

class GraphFunctionsTest : public RulesTest {
 protected:
  GraphFunctionsTest()
      : tenant(open_to_unload()), library(tenant.adopt(test_library("host_functions"))) {}

  Tenant open_to_unload() {
    TenantOptions options{LeaseChoice(LeaseKind::shared)};
    options.unload_at_close = true;
    return broker.open_tenant("careful", options);
  }
  CUDA_HOST_NODE_PARAMS params(HostFunctionData* data) const {
    return {reinterpret_cast<CUhostFn>(library.symbol("ctxb_test_count")), data};
  }
  CUresult add(CUgraphNode* node, CUgraph graph, const std::vector<CUgraphNode>& after) {
    const CUDA_HOST_NODE_PARAMS its = params(&data);
    return driver_call("cuGraphAddHostNode", node, graph, after.data(), after.size(), &its);
  }
  CUresult add_any(CUgraphNode* node, CUgraph graph, const std::vector<CUgraphNode>& after) {
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_HOST;
    any.host.fn = params(&data).fn;
    return driver_call("cuGraphAddNode", node, graph, after.data(), after.size(), &any);
  }

  Tenant tenant;
  AdoptedLibrary library;
  HostFunctionData data;
};
constexpr char graphs_have_functions[] = "graphs have host functions of it";

TEST_F(GraphFunctionsTest, FunctionThatTheDriverRefusedKeepsNoLibrary) {
  tenant.run(0, [&] {
    CUgraph graph = nullptr, other = nullptr;
    CUgraphNode node = nullptr, foreign = nullptr;
    CUgraphExec exec = nullptr;
    check_driver_call("cuGraphCreate", &graph, 0U);
    check_driver_call("cuGraphCreate", &other, 0U);
    check_driver_call("cuGraphAddEmptyNode", &foreign, other,
                      static_cast<const CUgraphNode*>(nullptr), std::size_t{0});
    EXPECT_NE(add(&node, graph, {foreign}), CUDA_SUCCESS) << "of another graph";
    EXPECT_NE(add_any(&node, graph, {foreign}), CUDA_SUCCESS);
    const CUDA_HOST_NODE_PARAMS its = params(&data);
    EXPECT_NE(driver_call("cuGraphHostNodeSetParams", foreign, &its), CUDA_SUCCESS)
        << "no host node";
    check_driver_call("cuGraphInstantiateWithFlags", &exec, other, 0ULL);
    EXPECT_NE(driver_call("cuGraphExecHostNodeSetParams", exec, foreign, &its), CUDA_SUCCESS);
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT_NE(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS) << "the capture is invalid";
    EXPECT_NE(driver_call("cuLaunchHostFunc", stream, its.fn, its.userData), CUDA_SUCCESS);
    EXPECT_NE(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    check_driver_call("cuStreamDestroy_v2", stream);
  });
  tenant.close();
  EXPECT_THAT(said(), Each(Not(HasSubstr(graphs_have_functions))));
}

TEST_F(GraphFunctionsTest, FunctionThatTheDriverTookKeepsTheLibrary) {
  tenant.run(0, [&] {
    CUgraph graph = nullptr, other = nullptr;
    CUgraphNode node = nullptr, foreign = nullptr;
    check_driver_call("cuGraphCreate", &graph, 0U);
    check_driver_call("cuGraphCreate", &other, 0U);
    check_driver_call("cuGraphAddEmptyNode", &foreign, other,
                      static_cast<const CUgraphNode*>(nullptr), std::size_t{0});
    EXPECT_EQ(add(&node, graph, {}), CUDA_SUCCESS);
    EXPECT_NE(add(&node, graph, {foreign}), CUDA_SUCCESS) << "the same function once more";
  });
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr(graphs_have_functions)));
}

// A host gives each frame its own data. The allocator counts nothing with a sanitizer.
TEST_F(GraphFunctionsTest, FunctionsThatAnExecutableGraphCallsNoMoreTakeNoMemory) {
  const SoftwareControls controls(broker.driver().path);
  constexpr std::size_t frames = 3000;
  std::vector<HostFunctionData> of_frames(frames);
  tenant.run(0, [&] {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    check_driver_call("cuGraphCreate", &graph, 0U);
    check_driver_call("cuGraphAddEmptyNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                      std::size_t{0});
    CUgraphNode last = nullptr;
    ASSERT_EQ(add(&last, graph, {node}), CUDA_SUCCESS);
    check_driver_call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
    const auto run_frames = [&](std::size_t first, std::size_t count) {
      for (std::size_t frame = first; frame < first + count; ++frame) {
        const CUDA_HOST_NODE_PARAMS its = params(&of_frames[frame]);
        check_driver_call("cuGraphExecHostNodeSetParams", exec, last, &its);
        check_driver_call("cuGraphLaunch", exec, stream);
        if (frame % 8 == 0) check_driver_call("cuStreamSynchronize", stream);
        if (!controls) continue;
        // A graph that the driver keeps has its functions as before.
        controls.fail_call("cuGraphExecDestroy", 1, CUDA_ERROR_INVALID_VALUE);
        EXPECT_EQ(driver_call("cuGraphExecDestroy", exec), CUDA_ERROR_INVALID_VALUE);
        controls.stop_counting();
      }
      check_driver_call("cuStreamSynchronize", stream);
    };
    run_frames(0, frames / 3);
    const std::size_t before = mallinfo2().uordblks;
    run_frames(frames / 3, frames / 3 * 2);
    EXPECT_LT(mallinfo2().uordblks, before + frames / 3 * 2 * 24);
    check_driver_call("cuGraphExecDestroy", exec);
    check_driver_call("cuGraphDestroy", graph);
    check_driver_call("cuStreamDestroy_v2", stream);
  });
  for (const HostFunctionData& one : of_frames) ASSERT_EQ(one.done, 1);
}

struct Guarded {
  const char* symbol;
  const char* rule;
};
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) {#symbol, #rule},
constexpr Guarded functions[] = {
#include "driver/function_table.inc"
};
#undef CTXB_DRIVER_FUNCTION

class EveryGuardedFunctionTest : public RulesTest {};

// With arguments that would end the process in most of them.
TEST_F(EveryGuardedFunctionTest, IsRefusedInAHostFunction) {
  Tenant tenant = open(broker, "careless", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("host_functions"));
  std::vector<const char*> names;
  for (const Guarded& one : functions) {
    const bool is_guarded = std::strcmp(one.rule, "pass") != 0;
    // A look-up changes nothing, and the runtime library makes look-ups wherever it is first used.
    if (is_guarded && std::strcmp(one.rule, "look_up") != 0) names.push_back(one.symbol);
  }
  ASSERT_GT(names.size(), 100U);
  std::vector<int> answers(names.size());
  HostFunctionData data;
  data.names = names.data();
  data.count = static_cast<int>(names.size());
  data.answers = answers.data();
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, 1U);
    check_driver_call("cuLaunchHostFunc", stream,
                      reinterpret_cast<CUhostFn>(library.symbol("ctxb_test_call_driver")),
                      static_cast<void*>(&data));
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
  });
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_TRUE(answers[i] == CUDA_ERROR_NOT_PERMITTED || answers[i] == -1)
        << names[i] << " answered " << answers[i];
  }
}

// The controls, past the gate.
class HostFunctionControl : public RulesTest {
 protected:
  static void throw_it(void*) { throw std::runtime_error("past the gate"); }
  static void exit_thread(void*) { pthread_exit(nullptr); }
  static void store_answer(void* given) {
    *static_cast<CUresult*>(given) = past_gate->synchronize();
  }
  static void store_thread(void* given) { *static_cast<long*>(given) = syscall(SYS_gettid); }
  static inline const RawDriver* past_gate = nullptr;
};

TEST_F(HostFunctionControl, DriverItselfRefusesItsFunctionsThere) {
  past_gate = &raw;
  Tenant tenant = open(broker, "control", LeaseKind::shared);
  CUresult answer = CUDA_SUCCESS;
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, 1U);
    EXPECT_EQ(raw.launch_host_function(stream, store_answer, &answer), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
  });
  EXPECT_EQ(answer, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(HostFunctionControl, DISABLED_ExceptionThatPassesTheDriver) {
  Tenant tenant = open(broker, "control", LeaseKind::shared);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, 1U);
    std::printf("LAUNCHED\n");
    std::fflush(stdout);
    EXPECT_EQ(raw.launch_host_function(stream, throw_it, nullptr), CUDA_SUCCESS);
    static_cast<void>(raw.call("cuStreamSynchronize", stream));
  });
  std::printf("SURVIVED\n");
}

TEST(HostFunctionControlTest, ExceptionThatPassesTheDriverEndsTheHost) {
  const ChildResult child =
      run_child("HostFunctionControl.DISABLED_ExceptionThatPassesTheDriver", signals_stay_signals);
  EXPECT_THAT(child.output, AllOf(HasSubstr("LAUNCHED"), Not(HasSubstr("SURVIVED"))));
  EXPECT_NE(child.exit_code, 0);
}

// The software device starts another thread. What NVIDIA's driver does is not known: it may never
// call a function again.
TEST_F(HostFunctionControl, EndOfTheThreadPastTheGateEndsTheDriversThread) {
  if (!driver_is_software()) GTEST_SKIP() << "the driver may not survive that";
  Tenant tenant = open(broker, "control", LeaseKind::shared);
  long before = 0, after = 0;
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, 1U);
    EXPECT_EQ(raw.launch_host_function(stream, store_thread, &before), CUDA_SUCCESS);
    EXPECT_EQ(raw.launch_host_function(stream, exit_thread, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(raw.launch_host_function(stream, store_thread, &after), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
  });
  EXPECT_NE(before, after);
}

}  // namespace
}  // namespace ctxbroker
