// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate: its owner's, and in the budget.
#include <gmock/gmock.h>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class GraphMemoryTest : public RulesTest {
 protected:
  struct Made {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr address = 0;
  };
  static constexpr std::size_t bytes = 4 * mib;

  static CUdeviceptr add_allocation(CUgraph graph, CUresult expected = CUDA_SUCCESS) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = bytes;
    CUgraphNode node = nullptr;
    EXPECT_EQ(driver_call("cuGraphAddMemAllocNode", &node, graph,
                          static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, &parameters),
              expected);
    return parameters.dptr;
  }
  static CUresult add_freeing(CUgraph graph, CUdeviceptr address) {
    CUgraphNode node = nullptr;
    return driver_call("cuGraphAddMemFreeNode", &node, graph,
                       static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, address);
  }
  static Made make_graph() {
    Made made;
    EXPECT_EQ(driver_call("cuGraphCreate", &made.graph, 0U), CUDA_SUCCESS);
    made.address = add_allocation(made.graph);
    instantiate(made);
    return made;
  }
  static void instantiate(Made& made) {
    EXPECT_EQ(driver_call("cuGraphInstantiateWithFlags", &made.exec, made.graph, 0ULL),
              CUDA_SUCCESS);
  }
  static CUresult launch(const Made& made) {
    const CUresult status = driver_call("cuGraphLaunch", made.exec, CUstream{nullptr});
    EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
    return status;
  }
  static void destroy(const Made& made) {
    EXPECT_EQ(driver_call("cuGraphExecDestroy", made.exec), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", made.graph), CUDA_SUCCESS);
  }
  static CUresult free(CUdeviceptr address) { return driver_call("cuMemFree_v2", address); }
  // Without what the driver keeps for the next launch.
  std::uint64_t used() const {
    std::uint64_t now = 0;
    raw.call("cuDeviceGraphMemTrim", 0);
    raw.call("cuDeviceGetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
             static_cast<void*>(&now));
    return now;
  }
  std::uint64_t held_memory(const Tenant& tenant) {
    return held(tenant, "memory of a graph").count;
  }
};

TEST_F(GraphMemoryTest, GraphMemoryIsFreedOnlyByItsOwner) {
  Tenant owner = open(broker, "owner", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  const Made made = owner.run(0, [&] {
    const Made one = make_graph();
    EXPECT_EQ(launch(one), CUDA_SUCCESS);
    return one;
  });
  EXPECT_EQ(held(owner, "memory of a graph").bytes, bytes);
  other.run(0, [&] {
    CUgraph graph = nullptr;
    EXPECT_EQ(free(made.address), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
    EXPECT_EQ(add_freeing(graph, made.address), CUDA_ERROR_INVALID_VALUE);
  });
  EXPECT_EQ(other.strikes(), 2U);
  EXPECT_GE(used(), bytes);
  owner.run(0, [&] {
    EXPECT_EQ(free(made.address), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(owner), 1U) << "the graph allocates it again";
    EXPECT_EQ(launch(made), CUDA_SUCCESS);
    destroy(made);
    EXPECT_EQ(held_memory(owner), 1U) << "it outlives the graph";
    EXPECT_EQ(driver_call("cuMemFreeAsync", made.address, CUstream{nullptr}), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(owner), 0U);
    const Made never = make_graph();
    EXPECT_EQ(held_memory(owner), 1U);
    destroy(never);
    EXPECT_EQ(held_memory(owner), 0U) << "no launch has allocated it";
  });
  EXPECT_EQ(owner.strikes(), 0U);
  EXPECT_EQ(metrics_of(owner).held_bytes, 0U);
}

TEST_F(GraphMemoryTest, MemoryAllocatedInACaptureBelongsToTheGraph) {
  Tenant tenant = open(broker, "captures", LeaseKind::green);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    Made made;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemAllocAsync", &made.address, bytes, stream), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(tenant), 1U);
    EXPECT_EQ(driver_call("cuMemFreeAsync", made.address, stream), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamEndCapture", stream, &made.graph), CUDA_SUCCESS);
    instantiate(made);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(launch(made), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(tenant), 1U);
    destroy(made);
    EXPECT_EQ(held_memory(tenant), 0U);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(GraphMemoryTest, AllocationNodeBeyondTheBudgetIsRefused) {
  Tenant poor = open(broker, "poor", LeaseKind::green, bytes + mib);
  poor.run(0, [&] {
    CUgraph graph = nullptr;
    ASSERT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
    EXPECT_NE(add_allocation(graph), 0U);
    add_allocation(graph, CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(GraphMemoryTest, GraphMemoryIsGivenBackWhenTheTenantCloses) {
  for (const bool graph_is_there : {true, false}) {
    Tenant tenant = open(broker, "leaks", LeaseKind::green);
    tenant.run(0, [&] {
      const Made made = make_graph();
      EXPECT_EQ(launch(made), CUDA_SUCCESS);
      make_graph();  // never launched
      if (!graph_is_there) destroy(made);
    });
    EXPECT_GE(used(), bytes);
    tenant.close();
    EXPECT_EQ(used(), 0U) << graph_is_there;
    EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x memory of a "
                                           "graph, ")));
  }
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

}  // namespace
}  // namespace ctxbroker
