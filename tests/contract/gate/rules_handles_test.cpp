// SPDX-License-Identifier: Apache-2.0
// The handles that a tenant gets for its lease: one, from every question and on every thread, as a
// program gets one for the primary context. And what the tenant learns of the primary.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

struct State {
  unsigned flags = ~0U;
  int active = -1;
  bool operator==(const State&) const = default;
};
std::ostream& operator<<(std::ostream& out, const State& state) {
  return out << "flags " << state.flags << ", active " << state.active;
}

class HandlesTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const char* name, MemorySource memory = MemorySource::automatic) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.memory = memory;
    return broker.open_tenant(name, options);
  }
  static State state(int device = 0) {
    State now;
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxGetState", device, &now.flags, &now.active),
              CUDA_SUCCESS);
    return now;
  }
  static CUcontext retain() {
    CUcontext context = nullptr;
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxRetain", &context, 0), CUDA_SUCCESS);
    return context;
  }
  static void release() { EXPECT_EQ(driver_call("cuDevicePrimaryCtxRelease_v2", 0), CUDA_SUCCESS); }
  static unsigned long long id_of(CUcontext context) {
    unsigned long long id = 0;
    EXPECT_EQ(driver_call("cuCtxGetId", context, &id), CUDA_SUCCESS);
    return id;
  }
  CUcontext primary() const {
    CUcontext context = raw.retain_primary(0);
    raw.call("cuDevicePrimaryCtxRelease_v2", 0);  // the broker has it
    return context;
  }
  // Runs `ask` on several threads that are inside the lease at once. The first is the calling one.
  template <typename Ask>
  static void on_each_of(int threads, Tenant& tenant, Ask&& ask) {
    std::barrier<> all_inside(threads), all_done(threads);
    const auto work = [&] {
      tenant.run(0, [&] {
        all_inside.arrive_and_wait();
        ask();
        all_done.arrive_and_wait();
      });
    };
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, HandlesTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

// ---- the state of the primary -------------------------------------------------------------------

TEST_P(HandlesTest, PrimaryIsInactiveUntilTheTenantRetainsIt) {
  Tenant tenant = open("ffmpeg");
  tenant.run(0, [&] {
    EXPECT_EQ(state(), (State{0, 0}));
    EXPECT_TRUE(raw.primary_is_active(0)) << "the driver's own answer, as a control";
    constexpr unsigned wanted = CU_CTX_SCHED_BLOCKING_SYNC;
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxSetFlags", 0, wanted), CUDA_SUCCESS);
    EXPECT_EQ(state(), (State{wanted, 0}));
    retain();
    EXPECT_EQ(state(), (State{wanted, 1}));
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxSetFlags", 0, wanted),
              CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    retain();
    release();
    EXPECT_EQ(state().active, 1);
    release();
    EXPECT_EQ(state(), (State{wanted, 0}));
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(HandlesTest, PrimaryIsActiveOnceTheTenantKnowsTheCurrentContext) {
  Tenant ucx = open("ucx");
  Tenant neighbour = open("neighbour");
  ucx.run(0, [&] {
    EXPECT_EQ(state().active, 0);
    EXPECT_NE(current(), nullptr);
    EXPECT_EQ(state(), (State{0, 1}));
  });
  EXPECT_EQ(neighbour.run(0, [] { return state(); }), (State{0, 0}));
  ucx.run(0, [&] {
    retain();
    release();
    EXPECT_EQ(state().active, 1) << "it was active without the retain";
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
    EXPECT_EQ(state(), (State{0, 0}));
  });
}

TEST_P(HandlesTest, PrimaryIsActiveOnceItIsMadeCurrentAsTheRuntimeLibraryDoes) {
  Tenant tenant = open("runtime");
  CUcontext const real = primary();
  tenant.run(0, [&] {
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(state().active, 0);
      EXPECT_EQ(driver_call("cuCtxSetCurrent", real), CUDA_SUCCESS);
      EXPECT_EQ(state().active, 1);
      EXPECT_EQ(driver_call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
    }
  });
}

// Asks and sets them as cudaGetDeviceFlags and cudaSetDeviceFlags do.
TEST_P(HandlesTest, FlagsOfTheContextAreThoseOfAPrimary) {
  Tenant tenant = open("flags");
  tenant.run(0, [] {});  // from now on, the broker keeps the primary active
  unsigned alone = 0, flags = 0;
  {
    const Entered inside(raw, primary());
    EXPECT_EQ(raw.call("cuCtxGetFlags", &alone), CUDA_SUCCESS);
  }
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, alone);
    EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SCHED_YIELD)), CUDA_SUCCESS);
    EXPECT_EQ(state().flags, unsigned(CU_CTX_SCHED_YIELD));
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST));
    // A context that it makes itself has its own.
    CUcontext own = nullptr;
    unsigned real = 0;
    ASSERT_EQ(driver_call("cuCtxCreate_v2", &own, unsigned(CU_CTX_SCHED_SPIN), 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    EXPECT_EQ(raw.call("cuCtxGetFlags", &real), CUDA_SUCCESS);
    EXPECT_EQ(flags, real);
    EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SCHED_AUTO)), CUDA_SUCCESS);
    EXPECT_EQ(state().flags, unsigned(CU_CTX_SCHED_YIELD)) << "not of the lease";
    EXPECT_EQ(driver_call("cuCtxDestroy_v2", own), CUDA_SUCCESS);
  });
}

// ---- one handle ---------------------------------------------------------------------------------

// The check that Numba makes: cached for the device, compared on each thread.
TEST_P(HandlesTest, CurrentContextIsTheRetainedOneOnEveryThread) {
  Tenant tenant = open("numba");
  CUcontext const kept = tenant.run(0, [] { return retain(); });
  EXPECT_EQ(kept, tenant.lease().context);
  std::mutex mutex;
  std::set<CUcontext> real;
  on_each_of(4, tenant, [&] {
    EXPECT_EQ(current(), kept);
    EXPECT_EQ(retain(), kept);
    EXPECT_EQ(id_of(nullptr), id_of(kept));
    const std::lock_guard lock(mutex);
    real.insert(raw.current());
  });
  EXPECT_EQ(real.size(), 1U) << "the code of a tenant has one context on all its threads";
  EXPECT_EQ(tenant.strikes(), 0U);
}

// In a green lease each of the threads has a context of its own. An event of the context follows
// the work in all of them.
TEST_P(HandlesTest, ThreadsOfAPluginLibraryKnowTheLeaseByOneHandle) {
  setenv("CTXB_TEST_DRIVER", "libcuda.so.1", 1);  // the gate
  constexpr ActivationSizes sizes{16, 16, 0, false};
  const PluginLibrary library = broker.load(test_library("behaviours"));
  std::vector<PluginInstance> instances;
  for (int i = 0; i < 2; ++i) {
    instances.push_back(
        broker.create(library, "meets", {Placement(0), LeaseChoice(GetParam()), 0}));
    instances.back().activate(sizes);
  }
  const auto use = [&](PluginInstance& instance) {
    std::vector<float> input(16 * 16 * 4), output(input.size());
    JobInfo job;
    job.width = job.height = 16;
    EXPECT_NO_THROW(
        Graph(broker, {&instance}, sizes, {}).process(input.data(), output.data(), job));
  };
  for (int round = 0; round < 3; ++round) {
    std::jthread other([&] { use(instances[0]); });
    use(instances[1]);
  }
  for (const PluginInstance& one : instances) EXPECT_EQ(one.metrics().strikes, 0U);
}

TEST_P(HandlesTest, EveryQuestionAnswersTheSameContext) {
  Tenant tenant = open("asks");
  CUcontext const kept = tenant.lease().context;
  CUcontext const real = primary();
  on_each_of(3, tenant, [&] {
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 0U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{256}), CUDA_SUCCESS);
    for (CUstream one : {stream, CUstream(nullptr)}) {
      CUcontext of_stream = nullptr;
      EXPECT_EQ(driver_call("cuStreamGetCtx", one, &of_stream), CUDA_SUCCESS);
      EXPECT_EQ(of_stream, kept);
    }
    EXPECT_EQ(context_of(memory), kept);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type = 0;
    CUcontext of_memory = nullptr;
    void* out[] = {&type, &of_memory};
    EXPECT_EQ(driver_call("cuPointerGetAttributes", 2U, which, out, memory), CUDA_SUCCESS);
    EXPECT_EQ(of_memory, kept);
    EXPECT_EQ(type, unsigned(CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(id_of(real), id_of(kept)) << "the primary stands for the lease";

    CUcontext popped = nullptr;
    EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, kept);
    EXPECT_EQ(driver_call("cuCtxPushCurrent_v2", kept), CUDA_SUCCESS);
    EXPECT_EQ(current(), kept);
    EXPECT_EQ(driver_call("cuCtxSetCurrent", real), CUDA_SUCCESS);
    EXPECT_EQ(current(), kept);
    EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// Each device has a state of its own, and a lease with one handle of its own.
TEST_P(HandlesTest, LeaseOnAnotherDeviceHasOneHandleToo) {
  if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  Tenant tenant = open("two devices");
  CUcontext const first = tenant.lease(0).context, second = tenant.lease(1).context;
  CUcontext const real = raw.retain_primary(1);
  raw.call("cuDevicePrimaryCtxRelease_v2", 1);
  tenant.run(0, [&] {
    EXPECT_EQ(current(), first);
    EXPECT_EQ(state(0).active, 1);
    EXPECT_EQ(state(1).active, 0);
  });
  on_each_of(3, tenant, [&] {
    for (CUcontext asked : {real, second}) {
      EXPECT_EQ(driver_call("cuCtxSetCurrent", asked), CUDA_SUCCESS);
      EXPECT_EQ(current(), second);
      EXPECT_EQ(id_of(nullptr), id_of(second));
      CUdeviceptr memory = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{256}), CUDA_SUCCESS);
      EXPECT_EQ(context_of(memory), second);
      EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuCtxSetCurrent", first), CUDA_SUCCESS);
      EXPECT_EQ(current(), first);
    }
    EXPECT_EQ(state(1).active, 1);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// Functions that take a context and are not translated work with the handle.
TEST_P(HandlesTest, HandleWorksWhereItIsNotTranslated) {
  Tenant tenant = open("uses");
  CUcontext const kept = tenant.lease().context;
  on_each_of(2, tenant, [&] {
    CUdeviceptr memory[2] = {};
    for (CUdeviceptr& one : memory)
      ASSERT_EQ(driver_call("cuMemAlloc_v2", &one, std::size_t{256}), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemcpyPeer", memory[1], kept, memory[0], kept, std::size_t{256}),
              CUDA_SUCCESS);
    unsigned version = 0;
    EXPECT_EQ(driver_call("cuCtxGetApiVersion", kept, &version), CUDA_SUCCESS);
    for (CUdeviceptr one : memory) EXPECT_EQ(driver_call("cuMemFree_v2", one), CUDA_SUCCESS);
  });
}

TEST_P(HandlesTest, GreenContextOfAStreamIsTheSameOnEveryThread) {
  if (GetParam() != LeaseKind::green) GTEST_SKIP() << "the streams have no green context";
  if (raw.find("cuStreamGetGreenCtx") == nullptr) GTEST_SKIP() << "the driver is too old";
  Tenant tenant = open("green");
  std::mutex mutex;
  std::set<CUgreenCtx> greens, real;
  std::set<CUcontext> contexts;
  on_each_of(3, tenant, [&] {
    CUstream stream = nullptr;
    CUgreenCtx green = nullptr, behind = nullptr;
    CUcontext context = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, unsigned(CU_STREAM_NON_BLOCKING)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamGetGreenCtx", stream, &green), CUDA_SUCCESS);
    EXPECT_EQ(raw.call("cuStreamGetGreenCtx", stream, &behind), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxFromGreenCtx", &context, behind), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
    const std::lock_guard lock(mutex);
    greens.insert(green);
    real.insert(behind);
    contexts.insert(context);
  });
  EXPECT_EQ(greens.size(), 1U);
  EXPECT_EQ(real.size(), 1U) << "the code of a tenant has one context on all its threads";
  EXPECT_EQ(contexts, std::set<CUcontext>{tenant.lease().context});
}

TEST_P(HandlesTest, HostSeesTheContextsAsTheyAre) {
  Tenant tenant = open("tenant", MemorySource::driver);
  Tenant pooled = open("pooled", MemorySource::pool);
  Tenant neighbour = open("neighbour");
  const auto allocate = [](Tenant& by) {
    CUdeviceptr memory = 0;
    by.run(0, [&] { driver_call("cuMemAlloc_v2", &memory, std::size_t{256}); });
    return memory;
  };
  const CUdeviceptr memory = allocate(tenant);
  CUcontext real = nullptr;
  raw.call("cuPointerGetAttribute", static_cast<void*>(&real), CU_POINTER_ATTRIBUTE_CONTEXT,
           memory);
  EXPECT_EQ(context_of(memory), real);
  if (GetParam() != LeaseKind::private_own) {
    EXPECT_EQ(context_of(allocate(pooled)), real) << "as for the driver's memory";
  }
  EXPECT_EQ(current(), nullptr);
  if (GetParam() == LeaseKind::private_own) {
    EXPECT_EQ(neighbour.run(0, [&] { return context_of(memory); }), real)
        << "a neighbour's context is none of the lease";
  }
  tenant.run(0, [&] { driver_call("cuMemFree_v2", memory); });
}

// ---- work of the lease --------------------------------------------------------------------------

// Work in a stream that goes on until it is let go.
struct HeldWork {
  std::atomic<bool> may_end{false};
  static void CUDA_CB hold(void* self) {
    while (!static_cast<HeldWork*>(self)->may_end) std::this_thread::yield();
  }
};

class LeaseWorkTest : public HandlesTest {
 protected:
  void SetUp() override {
    if (raw.find("cuCtxRecordEvent") == nullptr) GTEST_SKIP() << "the driver is too old";
  }
  static CUevent make_event() {
    CUevent event = nullptr;
    EXPECT_EQ(driver_call("cuEventCreate", &event, unsigned(CU_EVENT_DISABLE_TIMING)),
              CUDA_SUCCESS);
    return event;
  }
  static CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, unsigned(CU_STREAM_NON_BLOCKING)),
              CUDA_SUCCESS);
    return stream;
  }
  // Calls `look` on another thread inside the lease, while work of this thread is held.
  template <typename Look>
  void while_work_is_held(Tenant& tenant, Look&& look) {
    HeldWork work;
    tenant.run(0, [&] {
      CUstream const stream = make_stream();
      EXPECT_EQ(driver_call("cuLaunchHostFunc", stream, CUhostFn(&HeldWork::hold),
                            static_cast<void*>(&work)),
                CUDA_SUCCESS);
      std::jthread([&] { tenant.run(0, [&] { look(work, stream); }); }).join();
      work.may_end = true;
      EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, LeaseWorkTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_P(LeaseWorkTest, EventOfTheContextFollowsTheWorkOfAllThreads) {
  Tenant tenant = open("records");
  while_work_is_held(tenant, [&](HeldWork&, CUstream) {
    CUevent const of_lease = make_event(), of_slot = make_event();
    EXPECT_EQ(raw.call("cuCtxRecordEvent", raw.current(), of_slot), CUDA_SUCCESS);
    EXPECT_EQ(raw.call("cuEventQuery", of_slot), CUDA_ERROR_NOT_READY)
        << "the code of a tenant has one context on all its threads";
    EXPECT_EQ(driver_call("cuCtxRecordEvent", current(), of_lease), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventQuery", of_lease), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(driver_call("cuEventDestroy_v2", of_lease), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventDestroy_v2", of_slot), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(LeaseWorkTest, AllThreadsWaitForAnEventThatTheContextWaitsFor) {
  Tenant tenant = open("waits");
  HeldWork held;
  tenant.run(0, [&] {
    CUstream const stream = make_stream(), holding = make_stream();
    CUevent const event = make_event();
    EXPECT_EQ(driver_call("cuLaunchHostFunc", holding, CUhostFn(&HeldWork::hold),
                          static_cast<void*>(&held)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventRecord", event, holding), CUDA_SUCCESS);
    const auto memory = [] {
      CUdeviceptr address = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, std::size_t{4}), CUDA_SUCCESS);
      return address;
    }();
    const bool is_shared = GetParam() == LeaseKind::shared;
    std::jthread([&] {
      tenant.run(0, [&] {
        EXPECT_EQ(driver_call("cuCtxWaitEvent", current(), event),
                  is_shared ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
      });
    }).join();
    EXPECT_EQ(driver_call("cuMemsetD32Async", memory, 7U, std::size_t{1}, stream), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!is_shared) {
      EXPECT_EQ(driver_call("cuStreamQuery", stream), CUDA_ERROR_NOT_READY);
    }
    held.may_end = true;
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", holding), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventDestroy_v2", event), CUDA_SUCCESS);
    for (CUstream one : {stream, holding})
      EXPECT_EQ(driver_call("cuStreamDestroy_v2", one), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// With the lease's handle, with the primary's, and without one.
TEST_P(LeaseWorkTest, WaitForTheContextWaitsForTheWorkOfAllThreads) {
  Tenant tenant = open("synchronises");
  CUcontext const real = primary();
  for (const char* how : {"current", "named", "primary"}) {
    const bool names = how != std::string("current");
    if (names && raw.find("cuCtxSynchronize_v2") == nullptr) continue;
    while_work_is_held(tenant, [&](HeldWork& work, CUstream stream) {
      EXPECT_EQ(driver_call("cuStreamQuery", stream), CUDA_ERROR_NOT_READY);
      std::jthread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        work.may_end = true;
      });
      CUcontext const named = how == std::string("primary") ? real : current();
      EXPECT_EQ(names ? driver_call("cuCtxSynchronize_v2", named) : driver_call("cuCtxSynchronize"),
                CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuStreamQuery", stream), CUDA_SUCCESS) << how;
    });
  }
}

}  // namespace
}  // namespace ctxbroker
