// Captures of streams that a tenant's code begins and leaves open.
#include <gmock/gmock.h>

#include "attacks/attacks.h"
#include "policies_fixture.hpp"
#include "test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char ended[] = "left the capture of a stream open; it was ended";

class CapturesTest : public PoliciesTest {
 protected:
  // In the legacy stream of the context that all shared leases have.
  static CUresult work_in_legacy_stream(Tenant& tenant) {
    return tenant.run(0, [] {
      CUdeviceptr memory = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
      const CUresult status = driver_call("cuMemsetD8Async", memory, static_cast<unsigned char>(1),
                                          mib, CUstream{nullptr});
      EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
      return status;
    });
  }
  static int leave_capture(AdoptedLibrary& library, const char* how) {
    const AttackTarget nothing{};
    return reinterpret_cast<attack_function*>(library.symbol(how))("leave_capture", &nothing);
  }
};

TEST_F(CapturesTest, OneThatWasBegunInAGuardEndsWithIt) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  tenant.run(0, [&] { EXPECT_EQ(leave_capture(library, ATTACK), CUDA_SUCCESS); });
  EXPECT_THAT(said(), Contains(HasSubstr(ended)));
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
}

// The code, and its stream, stay in the process.
TEST_F(CapturesTest, OneThatWasBegunElsewhereEndsWithItsTenant) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  ASSERT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
  EXPECT_EQ(leave_capture(library, ATTACK_ON_OWN_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
      << "no longer so? The pages say that a capture harms the neighbours until it ends";
  EXPECT_THAT(said(), Not(Contains(HasSubstr(ended))));
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr(ended)));
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker
