// SPDX-License-Identifier: Apache-2.0
// The shield: while a green context exists on a device, the driver destroys that device's primary
// for nobody.
#include <string>
#include <tuple>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

using ShieldFacts = FactsTest;

enum class Standing { primary, nothing, green, private_context };

constexpr struct {
  Standing standing;
  const char* name;
} standings[] = {{Standing::primary, "ThePrimary"},
                 {Standing::nothing, "Nothing"},
                 {Standing::green, "AGreenContext"},
                 {Standing::private_context, "APrivateContext"}};

// A call that ends a primary which nobody guards.
struct Way {
  const char* name;
  CUresult (*call)(const Driver& d, CUdevice device);
  int releases;  // how many retains it gives back until it is refused: the fixture's, the shield's
  CUresult again;  // what it answers after that
};

constexpr Way ways[] = {
    {"Reset", [](const Driver& d, CUdevice device) { return d.cuDevicePrimaryCtxReset_v2(device); },
     0, CUDA_ERROR_NOT_PERMITTED},
    {"FirstVersionOfReset",
     [](const Driver& d, CUdevice device) { return d.cuDevicePrimaryCtxReset(device); }, 0,
     CUDA_ERROR_NOT_PERMITTED},
    {"OneReleaseTooMany",
     [](const Driver& d, CUdevice device) { return d.cuDevicePrimaryCtxRelease_v2(device); }, 2,
     CUDA_ERROR_INVALID_CONTEXT},
    {"FirstVersionOfOneReleaseTooMany",
     [](const Driver& d, CUdevice device) { return d.cuDevicePrimaryCtxRelease(device); }, 2,
     CUDA_SUCCESS}};

class Shielded : public FactsTest, public testing::WithParamInterface<std::tuple<Standing, Way>> {
 protected:
  CUcontext at(Standing standing, const Green& shield) {
    switch (standing) {
      case Standing::primary:
        return primary;
      case Standing::green:
        return shield.context;
      case Standing::private_context:
        return private_context();
      case Standing::nothing:
        break;
    }
    return nullptr;
  }
  // For what TearDown and the shield's end give back, which the test gave back already.
  void retain_again() {
    CUcontext again = nullptr;
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
    EXPECT_EQ(again, primary);
  }
};

TEST_P(Shielded, ShieldedPrimarySurvivesResetsAndReleases) {
  const auto [standing, way] = GetParam();
  const Green shield = green_over_all();
  const CUdeviceptr address = memory(4, 4711);
  const unsigned long long id = id_of(primary);
  CUcontext where = at(standing, shield);
  ASSERT_EQ(d.cuCtxSetCurrent(where), CUDA_SUCCESS);
  for (int i = 1; i < way.releases; ++i) EXPECT_EQ(way.call(d, device), CUDA_SUCCESS);
  EXPECT_EQ(way.call(d, device), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(way.call(d, device), way.again);
  EXPECT_EQ(current(), where);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_TRUE(primary_active());
  EXPECT_EQ(id_of(primary), id);
  EXPECT_EQ(word_at(address), 4711u);
  EXPECT_EQ(launch("empty", nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  for (int i = 0; i < way.releases; ++i) retain_again();
}

// The control: without the shield the same call ends the primary.
class Unshielded : public Shielded {};

TEST_P(Unshielded, UnshieldedPrimaryEndsAtResetOrRelease) {
  const auto [standing, way] = GetParam();
  const Green shield = green_over_all();
  const unsigned long long id = id_of(primary);
  for (int i = 1; i < way.releases; ++i) retain_again();
  ASSERT_EQ(d.cuCtxSetCurrent(at(standing, shield)), CUDA_SUCCESS);
  destroy_green(shield);
  gone(shield);
  for (int i = 1; i < way.releases; ++i) EXPECT_EQ(way.call(d, device), CUDA_SUCCESS);
  EXPECT_TRUE(primary_active());
  EXPECT_EQ(way.call(d, device), CUDA_SUCCESS);
  EXPECT_FALSE(primary_active());
  retain_again();
  EXPECT_NE(id_of(primary), id);
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

std::string name_of(const testing::TestParamInfo<std::tuple<Standing, Way>>& info) {
  std::string name = std::get<Way>(info.param).name;
  for (const auto& row : standings)
    if (row.standing == std::get<Standing>(info.param))
      name += std::string("WithCurrent") + row.name;
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Shielded,
                         testing::Combine(testing::Values(Standing::primary, Standing::nothing,
                                                          Standing::green,
                                                          Standing::private_context),
                                          testing::ValuesIn(ways)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(, Unshielded,
                         testing::Combine(testing::Values(Standing::primary, Standing::nothing,
                                                          Standing::private_context),
                                          testing::ValuesIn(ways)),
                         name_of);

TEST_F(ShieldFacts, ShieldHoldsAgainstEveryThread) {
  green_over_all();
  Call reset(primary, [&] { return d.cuDevicePrimaryCtxReset_v2(device); });
  EXPECT_EQ(reset.status(), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(ShieldFacts, OneGroupOfMultiprocessorsIsShieldEnough) {
  const Split split = split_device(device, 1);
  green({split.groups.at(0)});
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(ShieldFacts, AFunctionOfThePrimaryRunsInAGreenContext) {
  const CUfunction add = function("add_one");
  const Green made = green_over_all();
  CUdeviceptr address = memory(4, 1);
  unsigned one = 1;
  void* arguments[] = {&address, &one};
  Current entered(made.context);
  EXPECT_EQ(d.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(word_at(address), 2u);
}

// NVIDIA documents one thread at a time; this driver lets two work. The broker relies on it for the
// threads of a tenant, and not for those of plug-in libraries.
TEST_F(ShieldFacts, TwoThreadsUseOneGreenContextWithoutAnError) {
  const Green made = green_over_all();
  const CUfunction add = function("add_one");
  CUdeviceptr counters[2] = {memory(4), memory(4)};
  const auto work = [&](CUdeviceptr counter) {
    unsigned one = 1;
    void* arguments[] = {&counter, &one};
    CUstream stream = nullptr;
    CUresult status = d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 200 && status == CUDA_SUCCESS; ++i)
      status = d.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
    if (status == CUDA_SUCCESS) status = d.cuStreamSynchronize(stream);
    return status == CUDA_SUCCESS ? d.cuStreamDestroy_v2(stream) : status;
  };
  {
    Call first(made.context, [&] { return work(counters[0]); });
    Call second(made.context, [&] { return work(counters[1]); });
    EXPECT_EQ(first.status(), CUDA_SUCCESS);
    EXPECT_EQ(second.status(), CUDA_SUCCESS);
  }
  EXPECT_EQ(word_at(counters[0]), 200u);
  EXPECT_EQ(word_at(counters[1]), 200u);
}

}  // namespace
}  // namespace ctxbroker::test
