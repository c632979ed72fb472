// SPDX-License-Identifier: Apache-2.0
// Contexts: what one costs a process besides time, and what its handle and id are worth.
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

using ContextFacts = FactsTest;

long host_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST_F(ContextFacts, GreenContextHasNoHostThreadAndPrivateOneHas) {
  CTXB_REQUIRE_NVIDIA("the software device's threads are its own matter");
  green_over_all();  // what the first one starts once is not its own
  const long before = host_threads();
  green_over_all();
  EXPECT_EQ(host_threads(), before);
  private_context();
  EXPECT_EQ(host_threads(), before + 1);
}

TEST_F(ContextFacts, GreenContextTakesLessDeviceMemoryThanPrivateOne) {
  CTXB_REQUIRE_NVIDIA("the software device's contexts take no device memory");
  std::size_t free[3] = {}, total = 0;
  ASSERT_EQ(d.cuMemGetInfo_v2(&free[0], &total), CUDA_SUCCESS);
  green_over_all();
  ASSERT_EQ(d.cuMemGetInfo_v2(&free[1], &total), CUDA_SUCCESS);
  private_context();
  ASSERT_EQ(d.cuMemGetInfo_v2(&free[2], &total), CUDA_SUCCESS);
  EXPECT_LT((free[0] - free[1]) * 10, free[1] - free[2]);
}

TEST_F(ContextFacts, HundredGreenContextsWorkAtOnce) {
  constexpr unsigned count = 100;
  const CUfunction add = function("add_one");
  const CUdeviceptr counters = memory(4 * count);  // one each: they are at work at the same time
  unsigned one = 1;
  std::vector<Green> made;
  std::set<CUcontext> handles;
  for (unsigned i = 0; i < count; ++i) {
    made.push_back(green_over_all());
    handles.insert(made.back().context);
  }
  EXPECT_EQ(handles.size(), count);
  // None is waited for before all have their work.
  for (unsigned i = 0; i < count; ++i) {
    CUdeviceptr counter = counters + 4 * i;
    void* arguments[] = {&counter, &one};
    Current entered(made[i].context);
    EXPECT_EQ(d.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
  }
  for (const Green& each : made) {
    Current entered(each.context);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  for (unsigned i = 0; i < count; ++i) EXPECT_EQ(word_at(counters + 4 * i), 1u) << i;
}

// A table keyed by the handle finds the dead one again; the id tells them apart.
TEST_F(ContextFacts, ContextIdIsNeverReusedThoughTheHandleIs) {
  std::set<unsigned long long> ids = {id_of(primary)};
  for (int i = 0; i < 4; ++i) {
    CUcontext made = private_context();
    ids.insert(id_of(made));
    EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
    gone(made);
    const Green light = green_over_all();
    ids.insert(id_of(light.context));
    destroy_green(light);
    gone(light);
  }
  EXPECT_EQ(ids.size(), 9u);
}

TEST_F(ContextFacts, IdOfADestroyedContextIsRefusedOrCrashes) {
  expect_refused_or_crashed([&] {
    CUcontext made = private_context();
    EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
    unsigned long long id = 0;
    return d.cuCtxGetId(made, &id);
  });
}

// The push itself may succeed.
TEST_F(ContextFacts, DestroyedPrivateContextCannotBeUsedByItsOwner) {
  expect_refused_or_crashed([&] {
    CUcontext made = private_context();
    std::thread([&] { EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS); }).join();
    const CUresult pushed = d.cuCtxPushCurrent_v2(made);
    return pushed != CUDA_SUCCESS ? pushed : d.cuCtxSynchronize();
  });
}

}  // namespace
}  // namespace ctxbroker::test
