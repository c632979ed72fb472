// SPDX-License-Identifier: Apache-2.0
// Answers that a tenant gets as a program of its own would, although its lease, or the gate, has
// another by nature.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

class AnswersAloneTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const char* name) { return RulesTest::open(broker, name, GetParam()); }
  bool is_green() const { return GetParam() == LeaseKind::green; }
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, AnswersAloneTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_P(AnswersAloneTest, DefaultStreamHasTheFlagsOfAPrimarys) {
  Tenant tenant = open("flags");
  tenant.run(0, [&] {
    for (CUstream stream : {CUstream(nullptr), CU_STREAM_LEGACY}) {
      unsigned flags = ~0U, real = ~0U;
      EXPECT_EQ(driver_call("cuStreamGetFlags", stream, &flags), CUDA_SUCCESS);
      EXPECT_EQ(flags, unsigned(CU_STREAM_DEFAULT));
      EXPECT_EQ(raw.call("cuStreamGetFlags", stream, &real), CUDA_SUCCESS);
      EXPECT_EQ(real, unsigned(is_green() ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT))
          << "the driver's own answer, as a control";
    }
    CUstream own = nullptr;
    unsigned flags = ~0U;
    ASSERT_EQ(driver_call("cuStreamCreate", &own, unsigned(CU_STREAM_NON_BLOCKING)), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamGetFlags", own, &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", own), CUDA_SUCCESS);
  });
}

// The gate copies the image that a wrapper points to, which is followed once, as by the driver.
TEST_P(AnswersAloneTest, WrapperOfNoFatbinIsRefusedAsByTheDriver) {
  if (!SoftwareControls(broker.driver().path)) GTEST_SKIP() << "NVIDIA's driver may crash on it";
  struct Wrapper {
    std::uint32_t magic = 0x466243b1, version = 1;
    const void* image = nullptr;
    const void* unused = nullptr;
  } of_nothing, of_itself;
  of_itself.image = &of_itself;
  Tenant tenant = open("wraps");
  tenant.run(0, [&] {
    for (const Wrapper* wrapper : {&of_nothing, &of_itself}) {
      CUmodule module = nullptr;
      const auto* image = static_cast<const void*>(wrapper);
      EXPECT_EQ(driver_call("cuModuleLoadData", &module, image), CUDA_ERROR_INVALID_IMAGE);
      EXPECT_EQ(raw.call("cuModuleLoadData", &module, image), CUDA_ERROR_INVALID_IMAGE)
          << "the driver's own answer";
    }
  });
}

TEST_P(AnswersAloneTest, CaptureOfTheDefaultStreamIsRefusedAndLeavesNothing) {
  Tenant tenant = open("captures");
  tenant.run(0, [&] {
    for (CUstream stream : {CUstream(nullptr), CU_STREAM_LEGACY}) {
      EXPECT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    const CUresult control =
        raw.call("cuStreamBeginCapture_v2", CUstream(nullptr), CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(control, is_green() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        << "the driver's own answer";
    CUgraph graph = nullptr;
    if (control == CUDA_SUCCESS) raw.call("cuStreamEndCapture", CUstream(nullptr), &graph);
    if (graph != nullptr) raw.call("cuGraphDestroy", graph);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// Null is nobody's, so the driver answers for it, and it is no breach.
TEST_P(AnswersAloneTest, NullHandleIsAnsweredAsByTheDriver) {
  struct Call {
    const char* symbol;
    std::function<CUresult(void*)> make;
  };
  const auto ends = [](const char* symbol) {
    return Call{symbol, [=](void* found) {
                  return call_found(found, symbol, static_cast<void*>(nullptr));
                }};
  };
  const Call calls[] = {
      ends("cuCtxDestroy_v2"),
      ends("cuStreamDestroy_v2"),
      ends("cuEventDestroy_v2"),
      ends("cuModuleUnload"),
      ends("cuLibraryUnload"),
      ends("cuGraphDestroy"),
      ends("cuGraphExecDestroy"),
      ends("cuGraphDestroyNode"),
      ends("cuMemPoolDestroy"),
      ends("cuMemFree_v2"),
      ends("cuMemFreeHost"),
      ends("cuMemRelease"),
      ends("cuArrayDestroy"),
      ends("cuGreenCtxDestroy"),
      {"cuUserObjectRelease",
       [](void* found) { return call_found(found, "", CUuserObject(nullptr), 1U); }},
      {"cuUserObjectRetain",
       [](void* found) { return call_found(found, "", CUuserObject(nullptr), 1U); }},
      {"cuMemPoolTrimTo",
       [](void* found) { return call_found(found, "", CUmemoryPool(nullptr), std::size_t{0}); }},
      {"cuDeviceSetMemPool",
       [](void* found) { return call_found(found, "", CUdevice{0}, CUmemoryPool(nullptr)); }},
  };
  Tenant tenant = open("null");
  tenant.run(0, [&] {
    for (const Call& one : calls) {
      void* const real = raw.find(one.symbol);
      if (real == nullptr) continue;
      EXPECT_EQ(one.make(driver_look_up(one.symbol)), one.make(real)) << one.symbol;
    }
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(AnswersAloneTest, MissingDeviceAndNullPointerAreAnsweredAsByTheDriver) {
  Tenant tenant = open("no device");
  constexpr const char *retain = "cuDevicePrimaryCtxRetain", *state = "cuDevicePrimaryCtxGetState";
  CUcontext* const nowhere = nullptr;
  unsigned flags = 0;
  unsigned* const no_flags = nullptr;
  int active = 0;
  tenant.run(0, [&] {
    for (const CUdevice device : {-1, 0, 1000}) {
      SCOPED_TRACE(device);
      EXPECT_EQ(driver_call(retain, nowhere, device), raw.call(retain, nowhere, device));
      EXPECT_EQ(driver_call(state, device, no_flags, &active),
                raw.call(state, device, no_flags, &active));
    }
    EXPECT_EQ(driver_call(state, 0, &flags, &active), CUDA_SUCCESS) << "the control";
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// The gate asks no driver about such a handle: it could be the host's.
TEST_P(AnswersAloneTest, GraphThatNobodyHasIsAnsweredAsByTheDriver) {
  if (!driver_is_software()) GTEST_SKIP() << "NVIDIA's driver follows any handle";
  Tenant tenant = open("strange graph");
  const auto strange = reinterpret_cast<void*>(std::uintptr_t{8});
  tenant.run(0, [&] {
    for (const char* symbol : {"cuGraphDestroy", "cuGraphExecDestroy"}) {
      EXPECT_EQ(driver_call(symbol, strange), raw.call(symbol, strange)) << symbol;
    }
  });
  EXPECT_EQ(tenant.strikes(), 2U);
}

// A handle that nobody has is a breach all the same.
TEST_P(AnswersAloneTest, StrangeHandleIsAStrike) {
  Tenant tenant = open("strange");
  tenant.run(0, [&] {
    int nothing = 0;
    EXPECT_NE(driver_call("cuMemPoolDestroy", static_cast<void*>(&nothing)), CUDA_SUCCESS);
    EXPECT_NE(driver_call("cuCtxDestroy_v2", static_cast<void*>(&nothing)), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 2U);
}

// ---- addresses ----------------------------------------------------------------------------------

struct Pages {
  void* const address = std::aligned_alloc(4096, 4096);
  Pages() = default;
  ~Pages() { std::free(address); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
};

TEST_P(AnswersAloneTest, UnregisteringWhatNobodyRegisteredIsNoStrike) {
  Tenant tenant = open("registers");
  const Pages pages, hosts;
  tenant.run(0, [&] {
    ASSERT_EQ(driver_call("cuMemHostRegister_v2", pages.address, std::size_t{4096}, 0U),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostUnregister", pages.address), CUDA_SUCCESS);
    const CUresult alone = raw.call("cuMemHostUnregister", pages.address);
    EXPECT_EQ(alone, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(driver_call("cuMemHostUnregister", pages.address), alone);
    EXPECT_EQ(tenant.strikes(), 0U);
    // The control: what the host has registered stays, and is a strike.
    ASSERT_EQ(raw.call("cuMemHostRegister_v2", hosts.address, std::size_t{4096}, 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostUnregister", hosts.address),
              CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(tenant.strikes(), 1U);
    EXPECT_EQ(raw.call("cuMemHostUnregister", hosts.address), CUDA_SUCCESS) << "it was there";
  });
}

// A neighbour's memory given to the same functions is a strike, as a control.
TEST_P(AnswersAloneTest, OwnMemoryGivenToTheWrongFunctionIsRefusedWithoutAStrike) {
  Tenant tenant = open("owner"), neighbour = open("neighbour");
  const auto allocate = [] {
    CUdeviceptr memory = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{4096}), CUDA_SUCCESS);
    return memory;
  };
  const CUdeviceptr own = tenant.run(0, allocate), other = neighbour.run(0, allocate);
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuIpcCloseMemHandle", own), raw.call("cuIpcCloseMemHandle", own));
    EXPECT_EQ(driver_call("cuMemFreeHost", reinterpret_cast<void*>(own)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(tenant.strikes(), 0U);
    EXPECT_EQ(driver_call("cuIpcCloseMemHandle", other), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuMemFreeHost", reinterpret_cast<void*>(other)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(tenant.strikes(), 2U);
    EXPECT_EQ(driver_call("cuMemFree_v2", own), CUDA_SUCCESS) << "it was left alone";
  });
  EXPECT_EQ(neighbour.run(0, [&] { return driver_call("cuMemFree_v2", other); }), CUDA_SUCCESS);
}

// ---- the context and the process ----------------------------------------------------------------

TEST_P(AnswersAloneTest, PreferenceForCachesIsReadBackAndReachesNoNeighbour) {
  Tenant tenant = open("prefers"), neighbour = open("neighbour");
  const auto seen = [] {
    CUfunc_cache config{};
    EXPECT_EQ(driver_call("cuCtxGetCacheConfig", &config), CUDA_SUCCESS);
    return config;
  };
  const auto real = [&] {
    CUfunc_cache config{};
    EXPECT_EQ(raw.call("cuCtxGetCacheConfig", &config), CUDA_SUCCESS);
    return config;
  };
  const bool own_context = GetParam() == LeaseKind::private_own;
  tenant.run(0, [&] {
    const CUfunc_cache before = real();
    EXPECT_EQ(seen(), before);
    EXPECT_EQ(driver_call("cuCtxSetCacheConfig", CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSetCacheConfig", static_cast<CUfunc_cache>(77)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(seen(), CU_FUNC_CACHE_PREFER_L1);
    EXPECT_EQ(real(), own_context ? CU_FUNC_CACHE_PREFER_L1 : before);
  });
  EXPECT_EQ(neighbour.run(0, seen), CU_FUNC_CACHE_PREFER_NONE);
  EXPECT_EQ(neighbour.run(0, real), CU_FUNC_CACHE_PREFER_NONE);
  if (own_context) return;
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
    EXPECT_EQ(seen(), CU_FUNC_CACHE_PREFER_NONE) << "as after a reset alone";
    EXPECT_EQ(raw.call("cuCtxSetCacheConfig", CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
  });
  const CUfunc_cache reached = neighbour.run(0, real);
  tenant.run(0, [&] { raw.call("cuCtxSetCacheConfig", CU_FUNC_CACHE_PREFER_NONE); });
  EXPECT_EQ(reached, CU_FUNC_CACHE_PREFER_L1) << "the driver's own answer, as a control";
}

TEST_P(AnswersAloneTest, ProfilerIsStartedAndStoppedByTheHostOnly) {
  Tenant tenant = open("profiles");
  const SoftwareControls controls(broker.driver().path);
  const auto reached = [&](const char* symbol) -> std::uint64_t {
    return controls ? controls.call_count(symbol) : 0;
  };
  const unsigned one = controls ? 1 : 0;
  if (controls) controls.start_counting();
  tenant.run(0, [&] {
    for (const char* symbol : {"cuProfilerStart", "cuProfilerStop"}) {
      EXPECT_EQ(driver_call(symbol), CUDA_SUCCESS);
      EXPECT_EQ(reached(symbol), 0U);
      EXPECT_EQ(raw.call(symbol), CUDA_SUCCESS) << "the driver's own answer, as a control";
      EXPECT_EQ(reached(symbol), one);
    }
  });
  EXPECT_EQ(driver_call("cuProfilerStart"), raw.call("cuProfilerStart")) << "the host's is real";
  EXPECT_EQ(reached("cuProfilerStart"), 3 * one);
  if (controls) controls.stop_counting();
  EXPECT_EQ(tenant.strikes(), 0U);
}

}  // namespace
}  // namespace ctxbroker
