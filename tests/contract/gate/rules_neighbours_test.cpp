// SPDX-License-Identifier: Apache-2.0
// Things of a neighbour that a call reaches through another thing: memory through its pool, events
// through its graph.
#include <gmock/gmock.h>

#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class NeighboursThingsTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  NeighboursThingsTest()
      : owner(open(broker, "owner", GetParam())), other(open(broker, "other", GetParam())) {}

  static CUstream make_stream() {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    return stream;
  }
  static CUmemPoolProps pool_properties() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return properties;
  }
  CUresult allocate_from(CUmemoryPool pool) {
    return other.run(0, [&] {
      CUstream stream = make_stream();
      CUdeviceptr memory = 0;
      const CUresult status =
          driver_call("cuMemAllocFromPoolAsync", &memory, std::size_t{4096}, pool, stream);
      if (status == CUDA_SUCCESS) check_driver_call("cuMemFreeAsync", memory, stream);
      check_driver_call("cuStreamSynchronize", stream);
      check_driver_call("cuStreamDestroy_v2", stream);
      return status;
    });
  }
  // Makes the owner's graph, which records an event.
  CUgraph make_graph(CUevent event) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    check_driver_call("cuGraphCreate", &graph, 0U);
    check_driver_call("cuGraphAddEventRecordNode", &node, graph,
                      static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, event);
    return graph;
  }

  Tenant owner, other;
};

TEST_P(NeighboursThingsTest, AllocationFromANeighboursPoolIsRefused) {
  const CUmemPoolProps properties = pool_properties();
  CUmemoryPool made = nullptr, standard = nullptr, hosts = nullptr;
  owner.run(0, [&] {
    check_driver_call("cuMemPoolCreate", &made, &properties);
    check_driver_call("cuDeviceGetDefaultMemPool", &standard, CUdevice{0});
  });
  raw.check_call("cuMemPoolCreate", &hosts, &properties);
  EXPECT_EQ(allocate_from(made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate_from(standard), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(other.strikes(), 2U);
  EXPECT_THAT(said(), Contains(HasSubstr("is a neighbour's, owner; it was left alone")));
  EXPECT_EQ(allocate_from(hosts), CUDA_SUCCESS) << "the host may have lent it";
  EXPECT_EQ(other.strikes(), 2U);
  other.run(0, [&] {
    CUstream stream = make_stream();
    CUdeviceptr memory = 0;
    EXPECT_EQ(raw.call("cuMemAllocFromPoolAsync", &memory, std::size_t{4096}, made, stream),
              CUDA_SUCCESS)
        << "the driver itself, as a control";
    EXPECT_EQ(raw.call("cuMemFreeAsync", memory, stream), CUDA_SUCCESS);
    check_driver_call("cuStreamSynchronize", stream);
    EXPECT_EQ(driver_call("cuMemPoolTrimTo", made, std::size_t{0}), CUDA_ERROR_NOT_PERMITTED);
  });
  EXPECT_EQ(other.strikes(), 3U) << "so is a change of it";
  raw.check_call("cuMemPoolDestroy", hosts);
}

TEST_P(NeighboursThingsTest, NeighboursGraphIsNeitherClonedNorTakenOver) {
  CUevent event = nullptr, own_event = nullptr;
  CUgraph theirs = nullptr;
  owner.run(0, [&] {
    check_driver_call("cuEventCreate", &event, 0U);
    theirs = make_graph(event);
  });
  other.run(0, [&] {
    CUgraph clone = nullptr;
    EXPECT_EQ(driver_call("cuGraphClone", &clone, theirs), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(raw.call("cuGraphClone", &clone, theirs), CUDA_SUCCESS) << "as a control";
    raw.check_call("cuGraphDestroy", clone);

    check_driver_call("cuEventCreate", &own_event, 0U);
    CUgraph own = make_graph(own_event);
    CUgraphExec exec = nullptr;
    check_driver_call("cuGraphInstantiateWithFlags", &exec, own, 0ULL);
    CUgraphExecUpdateResultInfo result{};
    EXPECT_EQ(driver_call("cuGraphExecUpdate_v2", exec, theirs, &result), CUDA_ERROR_INVALID_VALUE);
    // NVIDIA's driver refuses another context's graph by itself.
    const bool by_driver = GetParam() == LeaseKind::private_own && !driver_is_software();
    EXPECT_EQ(raw.call("cuGraphExecUpdate_v2", exec, theirs, &result),
              by_driver ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS)
        << "as a control";
    CUgraph again = nullptr;
    EXPECT_EQ(driver_call("cuGraphClone", &again, own), CUDA_SUCCESS) << "its own";
    EXPECT_EQ(driver_call("cuGraphExecUpdate_v2", exec, again, &result), CUDA_SUCCESS);
    CUgraphNode node = nullptr;
    std::size_t count = 1;
    check_driver_call("cuGraphGetNodes", own, &node, &count);
    EXPECT_EQ(driver_call("cuGraphExecChildGraphNodeSetParams", exec, node, theirs),
              CUDA_ERROR_INVALID_VALUE);
    for (CUgraph graph : {own, again}) check_driver_call("cuGraphDestroy", graph);
    check_driver_call("cuGraphExecDestroy", exec);
  });
  EXPECT_EQ(other.strikes(), 3U);
  EXPECT_EQ(owner.strikes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Leases, NeighboursThingsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace ctxbroker
