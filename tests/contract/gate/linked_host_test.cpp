// A host that links the driver itself, every function bound before main: its DT_RPATH names the
// gate's folder, so that the gate is what it gets. It uses CUDA before it opens a broker.
#include <cuda.h>
#include <gmock/gmock.h>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

TEST(LinkedHostTest, UsesCudaBeforeTheBrokerAndIsProtectedByIt) {
  if (!driver_is_software() && cuInit(0) == CUDA_ERROR_NO_DEVICE) GTEST_SKIP() << "no device";
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(memory, 0x5a, 64), CUDA_SUCCESS);

  Broker broker = Broker::open();
  ASSERT_TRUE(broker.gate().in_force) << broker.gate().reason;
  EXPECT_THAT(broker.gate().reason, HasSubstr("before the driver"));
  Tenant attacker = broker.open_tenant("attacker", {LeaseKind::green});
  AdoptedLibrary library = attacker.adopt(test_library("attacks_linked"));
  auto* attack = reinterpret_cast<attack_function*>(library.symbol(ATTACK));
  AttackTarget target{};
  target.memory = memory;
  for (const char* one : {"reset", "reset_v2", "release", "release_v2", "free_memory"}) {
    attacker.run(0, [&] { attack(one, &target); });
  }
  CUcontext current = nullptr;
  EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, primary);
  unsigned char content[64] = {};
  EXPECT_EQ(cuMemcpyDtoH(content, memory, sizeof content), CUDA_SUCCESS);
  EXPECT_EQ(content[63], 0x5a);
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS) << "the host's own, as ever";
  attacker.close();
}

}  // namespace
}  // namespace ctxbroker
