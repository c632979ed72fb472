// SPDX-License-Identifier: Apache-2.0
// A tenant registers memory, frees it and forgets to unregister it. The system gives the addresses
// to others, who must not suffer, and the host is told whose registration it is.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstdlib>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class RegistrationsTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  RegistrationsTest()
      : careless(open(broker, "careless", GetParam())),
        neighbour(open(broker, "neighbour", GetParam())) {
    neighbour.run(0, [] {});
  }
  // Where the system gives what was mapped or allocated last.
  void leave_registrations(std::size_t bytes, bool in_heap) {
    careless.run(0, [&] {
      for (int i = 0; i < 4; ++i) {
        void* const memory = in_heap ? std::aligned_alloc(4096, bytes)
                                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, nullptr);
        ASSERT_NE(memory, MAP_FAILED);
        const CUresult status = driver_call("cuMemHostRegister_v2", memory, bytes, 0U);
        left.push_back(memory);
        in_heap ? std::free(memory) : static_cast<void>(munmap(memory, bytes));
        // The addresses of the one before: the driver has them still.
        if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return;
        ASSERT_EQ(status, CUDA_SUCCESS);
      }
    });
  }
  void use_memory(std::size_t bytes) {
    neighbour.run(0, [&] {
      CUdeviceptr memory = 0;
      void* pinned = nullptr;
      ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, bytes), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuMemsetD8_v2", memory, static_cast<unsigned char>(1), bytes),
                CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuMemHostAlloc", &pinned, bytes, 0U), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuMemFreeHost", pinned), CUDA_SUCCESS);
    });
  }

  Tenant careless, neighbour;
  std::vector<void*> left;
};

TEST_P(RegistrationsTest, NeighboursMemoryComesFromOtherPages) {
  for (const bool in_heap : {true, false}) {
    for (const std::size_t bytes : {std::size_t{64} << 10, mib, 8 * mib}) {
      use_memory(bytes);
      leave_registrations(bytes, in_heap);
      for (int i = 0; i < 5; ++i) use_memory(bytes);
      use_memory(4096);
    }
  }
  careless.close();
  use_memory(mib);
  EXPECT_EQ(neighbour.strikes(), 0U);
}

// The control: the driver itself refuses the addresses, and says nothing about who has them.
TEST_P(RegistrationsTest, RegistrationThatAnothersCoversIsToldWithItsHolder) {
  leave_registrations(mib, false);
  ASSERT_FALSE(left.empty());
  // Does as if the neighbour's allocator had got these addresses.
  void* const same = mmap(left[0], mib, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(same, left[0]);
  neighbour.run(0, [&] {
    EXPECT_EQ(raw.call("cuMemHostRegister_v2", same, mib, 0U),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_THAT(said(), Each(Not(HasSubstr("cuMemHostRegister: this tenant's registration"))));
    EXPECT_EQ(driver_call("cuMemHostRegister_v2", same, mib, 0U),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  });
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr("this tenant's registration of 1048576 bytes"),
                                     HasSubstr("neighbour wanted to register"))));
  EXPECT_EQ(careless.strikes() + neighbour.strikes(), 0U) << "both may mean the same memory";
  careless.close();
  neighbour.run(0, [&] {
    EXPECT_EQ(driver_call("cuMemHostRegister_v2", same, mib, 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostUnregister", same), CUDA_SUCCESS);
  });
  munmap(same, mib);
}

// The broker's own pinned memory comes from the system at once, so the old memory is gone. With the
// driver's memory, the broker registers it. In a pool, the driver chooses the addresses.
TEST_P(RegistrationsTest, BrokersPinnedMemoryPassesOverIt) {
  const ActivationSizes sizes{64, 64, 0, false};
  const std::size_t bytes = 64 * 64 * 4 * sizeof(float);
  for (const std::size_t one : {std::size_t{4096}, bytes, 4 * mib}) leave_registrations(one, false);
  for (const MemorySource memory : {MemorySource::pool, MemorySource::driver}) {
    BrokerOptions with_memory = options();
    with_memory.policy.for_all.memory = memory;
    Broker working = Broker::open(std::move(with_memory));
    std::vector<float> in(64 * 64 * 4, 1), out(in.size());
    PluginInstance instance =
        working.create(working.load(test_library("behaviours")), "affine",
                       {Placement(0), LeaseChoice(GetParam()), std::uint64_t{0}});
    instance.activate(sizes);
    Graph graph(working, {&instance}, sizes);
    JobInfo job;
    job.width = job.height = 64;
    graph.process(in.data(), out.data(), job);
    EXPECT_EQ(out[5], 1.0F) << to_string(memory);
  }
  EXPECT_THAT(said(), Contains(HasSubstr("the tenant has freed its own")));
  EXPECT_GE(careless.strikes(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Leases, RegistrationsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace ctxbroker
