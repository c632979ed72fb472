// SPDX-License-Identifier: Apache-2.0
// The driver gives the value of a handle out again as soon as a thing has ended. Two threads of a
// tenant end the same thing. Between the driver's work for the first and the moment that this call
// returns, the host gets the value for a thing of its own. The second thread is refused then, and
// its call does not reach the driver. Past the gate, the same call ends the host's thing.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gate/use.hpp"
#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/kernels.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using detail::DriverFunction;
using Value = std::uint64_t;

template <typename Handle>
Handle as(Value value) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(value);  // NOLINT(performance-no-int-to-ptr): it came from one
  } else {
    return static_cast<Handle>(value);
  }
}
template <typename Handle, typename... Arguments>
Value made(const char* symbol, Arguments... arguments) {
  Handle handle{};
  EXPECT_EQ(driver_call(symbol, &handle, arguments...), CUDA_SUCCESS) << symbol;
  return detail::handle_value(handle);
}

// The value of a registration is the address, which everybody can register again.
Value make_registration() {
  alignas(4096) static char memory[4096];
  EXPECT_EQ(driver_call("cuMemHostRegister_v2", static_cast<void*>(memory), sizeof memory, 0U),
            CUDA_SUCCESS);
  return detail::handle_value(static_cast<void*>(memory));
}

void CUDA_CB do_nothing(void*) {}

// While it lives, the broker's own table leads a driver function through here.
template <typename Real, typename Function = typename Real::Function>
class Watched;
template <typename Real, typename Handle, typename... More>
class Watched<Real, CUresult(Handle, More...)> {
 public:
  // Counts the driver's calls with that value. At the first, `meanwhile` runs when the driver has
  // done its work and before the call returns.
  Watched(Value value, std::function<void()> meanwhile) {
    watched_value = value;
    call_count = 0;
    watched_meanwhile = std::move(meanwhile);
    watched_driver = Real::behind.exchange(call);
  }
  ~Watched() { Real::behind = watched_driver; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  int calls() const { return call_count; }

 private:
  static CUresult call(Handle handle, More... more) {
    const CUresult status = watched_driver(handle, more...);
    if (detail::handle_value(handle) == watched_value && call_count++ == 0) watched_meanwhile();
    return status;
  }
  static inline Value watched_value = 0;
  static inline std::atomic<int> call_count{0};
  static inline std::function<void()> watched_meanwhile;
  static inline CUresult (*watched_driver)(Handle, More...) = nullptr;
};

// Memory that a graph has allocated and that outlives it.
Value make_graph_memory() {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.bytesize = 4096;
  EXPECT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuGraphAddMemAllocNode", &node, graph,
                        static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, &allocation),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuGraphLaunch", exec, static_cast<CUstream>(nullptr)), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuGraphExecDestroy", exec), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
  return allocation.dptr;
}

class ReusedHandlesTest : public RecordingBrokerTest {
 protected:
  void SetUp() override {
    TenantOptions options{LeaseChoice(LeaseKind::shared)};
    options.memory = MemorySource::driver;  // a free of the tenant's is the driver's own call then
    tenant_.push_back(broker.open_tenant("tenant", options));
    ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &hosts_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuCtxSetCurrent", hosts_), CUDA_SUCCESS);
  }
  void TearDown() override {
    driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr));
    driver_call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  // Makes up to 16 objects as the host, until one of them gets the value, and destroys the others.
  // Returns false if the driver has not given out the value again.
  bool host_gets(Value value, const std::function<Value()>& make,
                 const std::function<CUresult(Value)>& end) {
    bool is_there = false;
    std::thread([&] {
      driver_call("cuCtxSetCurrent", hosts_);
      std::vector<Value> others;
      for (int i = 0; i < 16 && !is_there; ++i) {
        const Value got = make();
        is_there = got == value;
        if (!is_there) others.push_back(got);
      }
      for (const Value other : others) end(other);
    }).join();
    return is_there;
  }

  CUresult on_second_thread(const std::function<CUresult()>& call) {
    CUresult status = CUDA_SUCCESS;
    std::thread([&] { status = tenant_.front().run(0, call); }).join();
    return status;
  }

  // The driver's function ends what `make` makes.
  template <detail::SymbolName name, typename Handle, typename... More>
  void expect_refused(const std::function<Value()>& make, More... more) {
    SCOPED_TRACE(name.text);
    const auto end = [&](Value value) {
      return driver_call(name.text, as<Handle>(value), more...);
    };
    const Value value = tenant_.front().run(0, make);
    bool is_hosts = false;
    CUresult second = CUDA_SUCCESS;
    {
      const Watched<DriverFunction<name, CUresult(Handle, More...)>> watched(value, [&] {
        is_hosts = host_gets(value, make, end);
        second = on_second_thread([&] { return end(value); });
      });
      EXPECT_EQ(tenant_.front().run(0, [&] { return end(value); }), CUDA_SUCCESS);
      EXPECT_EQ(watched.calls(), 1) << "the second call reached the driver";
    }
    EXPECT_NE(second, CUDA_SUCCESS);
    EXPECT_TRUE(!is_hosts || end(value) == CUDA_SUCCESS) << "what the host made is gone";
    values_given_out_again_ += is_hosts ? 1 : 0;
  }

  std::vector<Tenant> tenant_;
  CUcontext hosts_ = nullptr;
  int values_given_out_again_ = 0;
};

TEST_F(ReusedHandlesTest, SecondThreadThatEndsTheSameHandleIsRefused) {
  expect_refused<"cuMemFree_v2", CUdeviceptr>(
      [] { return made<CUdeviceptr>("cuMemAlloc_v2", std::size_t{4096}); });
  expect_refused<"cuMemFree_v2", CUdeviceptr>(
      [] { return made<CUdeviceptr>("cuMemAllocManaged", std::size_t{4096}, 1U); });
  expect_refused<"cuMemFreeHost", void*>(
      [] { return made<void*>("cuMemHostAlloc", std::size_t{4096}, 0U); });
  expect_refused<"cuStreamDestroy_v2", CUstream>(
      [] { return made<CUstream>("cuStreamCreate", 1U); });
  expect_refused<"cuEventDestroy_v2", CUevent>([] { return made<CUevent>("cuEventCreate", 0U); });
  expect_refused<"cuModuleUnload", CUmodule>(
      [] { return made<CUmodule>("cuModuleLoadData", static_cast<const void*>(empty_ptx)); });
  expect_refused<"cuArrayDestroy", CUarray>([] {
    static CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
    return made<CUarray>("cuArrayCreate_v2", static_cast<const CUDA_ARRAY_DESCRIPTOR*>(&shape));
  });
  expect_refused<"cuGraphDestroy", CUgraph>([] { return made<CUgraph>("cuGraphCreate", 0U); });
  expect_refused<"cuUserObjectRelease", CUuserObject>(
      [] {
        return made<CUuserObject>("cuUserObjectCreate", static_cast<void*>(nullptr), &do_nothing,
                                  1U, unsigned(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
      },
      1U);
  expect_refused<"cuMemHostUnregister", void*>(make_registration);
  EXPECT_GE(values_given_out_again_, 1) << "of the registration at least";
}

TEST_F(ReusedHandlesTest, SecondThreadThatFreesGraphMemoryIsRefused) {
  expect_refused<"cuMemFree_v2", CUdeviceptr>(make_graph_memory);
}

TEST_F(ReusedHandlesTest, SecondThreadThatDestroysAGraphNodeIsRefused) {
  CUgraph graphs[2] = {nullptr, nullptr};  // the tenant's, and the host's
  tenant_.front().run(0, [&] { driver_call("cuGraphCreate", &graphs[0], 0U); });
  ASSERT_EQ(driver_call("cuGraphCreate", &graphs[1], 0U), CUDA_SUCCESS);
  const std::thread::id tenants = std::this_thread::get_id();
  expect_refused<"cuGraphDestroyNode", detail::Word>([&] {
    const bool is_hosts = std::this_thread::get_id() != tenants;
    return made<CUgraphNode>("cuGraphAddEmptyNode", graphs[is_hosts ? 1 : 0],
                             static_cast<const CUgraphNode*>(nullptr), std::size_t{0});
  });
  tenant_.front().run(0, [&] { driver_call("cuGraphDestroy", graphs[0]); });
  driver_call("cuGraphDestroy", graphs[1]);
}

// An object in a context that the tenant's code made is destroyed with that context.
TEST_F(ReusedHandlesTest, SecondThreadThatEndsAHandleOfAnEndingContextIsRefused) {
  const auto make = [] { return made<CUstream>("cuStreamCreate", 1U); };
  const auto end = [](Value value) {
    return driver_call("cuStreamDestroy_v2", as<CUstream>(value));
  };
  CUcontext context = nullptr, popped = nullptr;
  Value value = 0;
  tenant_.front().run(0, [&] {
    ASSERT_EQ(driver_call("cuCtxCreate_v2", &context, 0U, 0), CUDA_SUCCESS);
    value = make();
    driver_call("cuCtxPopCurrent_v2", &popped);
  });
  bool is_hosts = false;
  CUresult second = CUDA_SUCCESS;
  const Watched<DriverFunction<"cuStreamDestroy_v2", CUresult(CUstream)>> streams(value, [] {});
  {
    const Watched<DriverFunction<"cuCtxDestroy_v2", CUresult(CUcontext)>> contexts(
        detail::handle_value(context), [&] {
          is_hosts = host_gets(value, make, end);
          second = on_second_thread([&] { return end(value); });
        });
    EXPECT_EQ(tenant_.front().run(0, [&] { return driver_call("cuCtxDestroy_v2", context); }),
              CUDA_SUCCESS);
  }
  EXPECT_NE(second, CUDA_SUCCESS);
  EXPECT_EQ(streams.calls(), 0) << "the second call reached the driver";
  EXPECT_TRUE(!is_hosts || end(value) == CUDA_SUCCESS) << "what the host made is gone";
}

// The driver refuses to take a reference, and meanwhile another thread has got one more.
TEST_F(ReusedHandlesTest, ReferenceTakenDuringARefusedReleaseIsCounted) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "the driver cannot be told to refuse";
  const Value value = tenant_.front().run(0, [] {
    return made<CUuserObject>("cuUserObjectCreate", static_cast<void*>(nullptr), &do_nothing, 2U,
                              unsigned(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  });
  const auto change = [&](const char* symbol) {
    return driver_call(symbol, as<CUuserObject>(value), 1U);
  };
  {
    const Watched<DriverFunction<"cuUserObjectRelease", CUresult(CUuserObject, unsigned)>> watched(
        value, [&] {
          EXPECT_EQ(on_second_thread([&] { return change("cuUserObjectRetain"); }), CUDA_SUCCESS);
        });
    controls.fail_call("cuUserObjectRelease", 1, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(tenant_.front().run(0, [&] { return change("cuUserObjectRelease"); }),
              CUDA_ERROR_INVALID_VALUE);
    controls.stop_counting();
  }
  tenant_.front().run(0, [&] {
    for (int references = 3; references > 0; --references) {
      EXPECT_EQ(change("cuUserObjectRelease"), CUDA_SUCCESS) << references;
    }
    EXPECT_NE(change("cuUserObjectRelease"), CUDA_SUCCESS);
  });
}

// The control: the driver itself takes the second call for the new owner's.
TEST_F(ReusedHandlesTest, SecondCallPastTheGateEndsAHandleOfTheHost) {
  const RawDriver driver(broker.driver().path);
  const auto end = [&](Value value) {
    return driver.call("cuMemHostUnregister", as<void*>(value));
  };
  const Value value = tenant_.front().run(0, make_registration);
  EXPECT_EQ(tenant_.front().run(0, [&] { return end(value); }), CUDA_SUCCESS);
  ASSERT_TRUE(host_gets(value, make_registration, end));
  EXPECT_EQ(on_second_thread([&] { return end(value); }), CUDA_SUCCESS);
  EXPECT_NE(end(value), CUDA_SUCCESS) << "what the host registered is still there";
}

}  // namespace
}  // namespace ctxbroker
