// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's runtime library does to contexts. It is linked statically here, as nvcc does by
// default. Every test runs in a child process, for the library keeps a state of its own.
#include <cuda_runtime_api.h>

#include <string>
#include <thread>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

enum class Standing { primary, nothing, private_context, green };

// A primary with memory in it, held by its retain, and a context of each kind beside it.
struct Neighbourhood {
  const Driver& d = driver();
  CUcontext primary = nullptr, own = nullptr;
  Green green;
  CUmodule module = nullptr, own_module = nullptr;
  CUdeviceptr of_primary = 0, of_own = 0;
  unsigned long long id = 0;

  explicit Neighbourhood(bool with_green) {
    CUcontext popped = nullptr;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxGetId(primary, &id), CUDA_SUCCESS);
    fill(primary, module, of_primary);
    EXPECT_EQ(d.cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    fill(own, own_module, of_own);
    if (with_green) green = make_green(0, {all_multiprocessors(0)});
  }
  void fill(CUcontext context, CUmodule& into, CUdeviceptr& address) const {
    Current entered(context);
    EXPECT_EQ(d.cuModuleLoadData(&into, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD32_v2(address, 4711, 1), CUDA_SUCCESS);
    EXPECT_EQ(launch(into, "empty"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  CUfunction function(CUmodule from, const char* name) const {
    CUfunction found = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&found, from, name), CUDA_SUCCESS);
    return found;
  }
  CUresult launch(CUmodule from, const char* name) const {
    return d.cuLaunchKernel(function(from, name), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  CUcontext at(Standing standing) const {
    switch (standing) {
      case Standing::primary:
        return primary;
      case Standing::private_context:
        return own;
      case Standing::green:
        return green.context;
      case Standing::nothing:
        break;
    }
    return nullptr;
  }
  bool primary_active() const {
    unsigned flags = 0;
    int active = -1;
    EXPECT_EQ(d.cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    return active == 1;
  }
  // Allocations, modules and launches go on.
  void expect_intact(CUcontext context, CUmodule from, CUdeviceptr address) const {
    Current entered(context);
    unsigned word = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&word, address, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(word, 4711u);
    EXPECT_EQ(launch(from, "empty"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void expect_primary_intact() const {
    unsigned long long now = 0;
    EXPECT_TRUE(primary_active());
    EXPECT_EQ(d.cuCtxGetId(primary, &now), CUDA_SUCCESS);
    EXPECT_EQ(now, id);
    expect_intact(primary, module, of_primary);
  }
  CUcontext current() const {
    CUcontext found = nullptr;
    EXPECT_EQ(d.cuCtxGetCurrent(&found), CUDA_SUCCESS);
    return found;
  }
};

class RuntimeFacts : public testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

// The use that the process has made of the runtime before the reset.
enum class Used { never, in_a_lent_context, on_another_thread, on_this_thread };

void use_runtime_once() {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

struct ResetRow {
  const char* name;
  Standing standing;
  Used used;
  int expected;  // a cudaError_t's value; the driver's 800 is among them
  bool with_green;
  bool primary_is_current;
};

constexpr int not_permitted = 800;
constexpr ResetRow reset_rows[] = {
    {"WithThePrimaryCurrentEndsIt", Standing::primary, Used::in_a_lent_context, 0, false, false},
    {"WithNothingCurrentDestroysNothing", Standing::nothing, Used::on_this_thread, 0, false, true},
    {"WithNothingCurrentOfAThreadThatNeverUsedTheRuntimeDestroysNothing", Standing::nothing,
     Used::on_another_thread, 0, false, true},
    {"WithAPrivateContextCurrentDestroysNothing", Standing::private_context,
     Used::in_a_lent_context, 0, false, true},
    {"WithAGreenContextCurrentIsRefused", Standing::green, Used::in_a_lent_context, not_permitted,
     true, true},
    {"WithThePrimaryCurrentBesideAGreenContextIsRefused", Standing::primary,
     Used::in_a_lent_context, not_permitted, true, true},
    {"WithNothingCurrentBesideAGreenContextDestroysNothing", Standing::nothing,
     Used::on_this_thread, 0, true, true},
    {"WithAPrivateContextCurrentBesideAGreenContextDestroysNothing", Standing::private_context,
     Used::in_a_lent_context, 0, true, true},
    {"WithNothingCurrentOfARuntimeThatWasLentItsContextsDestroysNothing", Standing::nothing,
     Used::in_a_lent_context, 0, false, true},
    {"OfARuntimeThatWasNeverUsedDestroysNothing", Standing::nothing, Used::never, 0, false, true},
};

class Reset : public RuntimeFacts, public testing::WithParamInterface<ResetRow> {};

TEST_P(Reset, DeviceResetBehavesAsItsRowSays) {
  const ResetRow row = GetParam();
  expect_in_child([row] {
    const Neighbourhood all(row.with_green);
    if (row.used == Used::on_another_thread) std::thread(use_runtime_once).join();
    if (row.used == Used::in_a_lent_context) {
      Current entered(all.primary);
      use_runtime_once();
    }
    int status = -1;
    std::thread([&] {  // a plug-in's own
      if (row.used == Used::on_this_thread) use_runtime_once();
      EXPECT_EQ(all.d.cuCtxSetCurrent(all.at(row.standing)), CUDA_SUCCESS);
      status = static_cast<int>(cudaDeviceReset());
    })
        .join();
    EXPECT_EQ(status, row.expected);
    all.expect_intact(all.own, all.own_module, all.of_own);
    if (row.primary_is_current) {
      all.expect_primary_intact();
    } else {
      EXPECT_FALSE(all.primary_active());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Reset, testing::ValuesIn(reset_rows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(RuntimeFacts, SetDeviceThrowsAThreadOutOfItsPrivateContext) {
  expect_in_child([] {
    const Neighbourhood all(false);
    Current entered(all.own);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(all.current(), all.primary);
    EXPECT_EQ(all.d.cuCtxSetCurrent(all.own), CUDA_SUCCESS);  // what `entered` pops
  });
}

TEST_F(RuntimeFacts, SetDeviceThrowsAThreadOutOfItsGreenContext) {
  expect_in_child([] {
    const Neighbourhood all(true);
    Current entered(all.green.context);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(all.current(), all.primary);
    EXPECT_EQ(all.d.cuCtxSetCurrent(all.green.context), CUDA_SUCCESS);
  });
}

TEST_F(RuntimeFacts, AThreadThatSetsNoDeviceMakesThePrimaryOfTheFirst) {
  expect_in_child([] {
    const Driver& d = driver();
    unsigned flags = 0;
    int before = -1, after = -1;
    ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxGetState(0, &flags, &before), CUDA_SUCCESS);
    std::thread(use_runtime_once).join();
    EXPECT_EQ(d.cuDevicePrimaryCtxGetState(0, &flags, &after), CUDA_SUCCESS);
    EXPECT_EQ(before, 0);
    EXPECT_EQ(after, 1);
  });
}

TEST_F(RuntimeFacts, ALimitSetInAGreenContextIsThePrimarys) {
  expect_in_child([] {
    const Neighbourhood all(true);
    std::size_t before = 0, after = 0;
    {
      Current entered(all.primary);
      EXPECT_EQ(all.d.cuCtxGetLimit(&before, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
    }
    {
      Current entered(all.green.context);
      EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, before + 4096), cudaSuccess);
    }
    Current entered(all.primary);
    EXPECT_EQ(all.d.cuCtxGetLimit(&after, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
    EXPECT_GE(after, before + 4096);
  });
}

TEST_F(RuntimeFacts, MemoryMadeInAGreenContextIsThePrimarysAndOutlivesIt) {
  expect_in_child([] {
    const Neighbourhood all(true);
    void* memory = nullptr;
    {
      Current entered(all.green.context);
      ASSERT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
      ASSERT_EQ(cudaMemset(memory, 1, 4), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    destroy_green(all.green);
    Current entered(all.primary);
    unsigned word = 0;
    CUcontext owner = nullptr;
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    EXPECT_EQ(all.d.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address),
              CUDA_SUCCESS);
    EXPECT_EQ(owner, all.primary);
    EXPECT_EQ(all.d.cuMemcpyDtoH_v2(&word, address, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(word, 0x01010101u);
  });
}

TEST_F(RuntimeFacts, AStreamMadeInAGreenContextBelongsToIt) {
  expect_in_child([] {
    const Neighbourhood all(true);
    Current entered(all.green.context);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    CUcontext owner = nullptr;
    EXPECT_EQ(all.d.cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
    EXPECT_EQ(owner, all.green.context);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  });
}

// A kernel without an end in one context, a call of the runtime in another.
struct WaitRow {
  const char* name;
  Standing hog, caller;
  bool frees;  // else it synchronises the device
  bool waits;
};

constexpr WaitRow wait_rows[] = {
    {"SynchronizeInAGreenContextWaitsForThePrimary", Standing::primary, Standing::green, false,
     true},
    {"SynchronizeInAGreenContextWaitsForAnotherGreenOne", Standing::green, Standing::green, false,
     true},
    {"FreeInAGreenContextWaitsForAnotherGreenOne", Standing::green, Standing::green, true, true},
    {"SynchronizeInAPrivateContextDoesNotWaitForThePrimary", Standing::primary,
     Standing::private_context, false, false},
    {"FreeInAPrivateContextDoesNotWaitForThePrimary", Standing::primary, Standing::private_context,
     true, false},
    {"SynchronizeInAPrivateContextDoesNotWaitForAnother", Standing::private_context,
     Standing::private_context, false, false},
    {"FreeInAPrivateContextDoesNotWaitForAnother", Standing::private_context,
     Standing::private_context, true, false},
};

class Waits : public RuntimeFacts, public testing::WithParamInterface<WaitRow> {};

TEST_P(Waits, RuntimeCallWaitsAsItsRowSays) {
  const WaitRow row = GetParam();
  expect_in_child([row] {
    const Neighbourhood all(true);
    const Green other_green = make_green(0, {all_multiprocessors(0)});
    CUcontext other_own = nullptr, popped = nullptr;
    EXPECT_EQ(all.d.cuCtxCreate_v2(&other_own, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(all.d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    CUcontext caller = row.caller == Standing::green ? other_green.context : other_own;
    void* memory = nullptr;
    {
      Current entered(caller);
      EXPECT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    Current entered(all.at(row.hog));
    const CUmodule from = row.hog == Standing::private_context ? all.own_module : all.module;
    Hold hog(all.function(from, "hold"), nullptr);
    Call call(caller, [&] {
      return static_cast<CUresult>(row.frees ? cudaFree(memory) : cudaDeviceSynchronize());
    });
    if (row.waits) {
      EXPECT_FALSE(call.returns_within(a_while));
    } else {
      EXPECT_TRUE(call.returns_within(long_enough));
    }
    hog.let_go();
    EXPECT_EQ(call.status(), CUDA_SUCCESS);
  });
}

INSTANTIATE_TEST_SUITE_P(, Waits, testing::ValuesIn(wait_rows),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace ctxbroker::test
