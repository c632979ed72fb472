// SPDX-License-Identifier: Apache-2.0
// cuGraphAddNode, which takes a node of any type.
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class GraphNodeTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
    ASSERT_EQ(d.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  }
  // Adds it behind the last one.
  CUresult add(CUgraphNodeParams& parameters) {
    CUgraphNode node = nullptr;
    const CUresult status = d.cuGraphAddNode_v2(&node, graph, last == nullptr ? nullptr : &last,
                                                nullptr, last == nullptr ? 0 : 1, &parameters);
    if (status != CUDA_SUCCESS) return status;
    CUgraphNodeType type{};
    EXPECT_EQ(d.cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
    EXPECT_EQ(type, parameters.type);
    last = node;
    return status;
  }
  static CUgraphNodeParams of_type(CUgraphNodeType type) {
    CUgraphNodeParams parameters = {};
    parameters.type = type;
    return parameters;
  }
  CUgraphNodeParams memset_of(CUdeviceptr address, unsigned value) const {
    CUgraphNodeParams parameters = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
    parameters.memset.dst = address;
    parameters.memset.value = value;
    parameters.memset.elementSize = 4;
    parameters.memset.width = 16;
    parameters.memset.height = 1;
    parameters.memset.ctx = primary;
    return parameters;
  }
  void launch_once() const {
    CUgraphExec exec = nullptr;
    ASSERT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }

  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;
};

TEST_F(GraphNodeTest, AddNodeTakesEveryTypeThatHasItsOwnCall) {
  CUgraphNodeParams set = memset_of(memory, 4);
  ASSERT_EQ(add(set), CUDA_SUCCESS);
  CUgraphNodeParams empty = of_type(CU_GRAPH_NODE_TYPE_EMPTY);
  ASSERT_EQ(add(empty), CUDA_SUCCESS);
  unsigned count = 16, received = 0;
  void* arguments[] = {&memory, &count};
  CUgraphNodeParams kernel = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  kernel.kernel.func = function("add_one");
  kernel.kernel.gridDimX = kernel.kernel.gridDimY = kernel.kernel.gridDimZ = 1;
  kernel.kernel.blockDimX = 32;
  kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1;
  kernel.kernel.kernelParams = arguments;
  ASSERT_EQ(add(kernel), CUDA_SUCCESS);
  CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  copy.memcpy.copyCtx = primary;
  CUDA_MEMCPY3D& shape = copy.memcpy.copyParams;
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = memory;
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = &received;
  shape.WidthInBytes = sizeof received;
  shape.Height = shape.Depth = 1;
  ASSERT_EQ(add(copy), CUDA_SUCCESS);
  struct Seen {
    const unsigned* source;
    unsigned value;
  } seen = {&received, 0};
  CUgraphNodeParams host = of_type(CU_GRAPH_NODE_TYPE_HOST);
  host.host.fn = [](void* data) {
    auto& to = *static_cast<Seen*>(data);
    to.value = *to.source;
  };
  host.host.userData = &seen;
  ASSERT_EQ(add(host), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  CUgraphNodeParams record = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  record.eventRecord.event = event;
  ASSERT_EQ(add(record), CUDA_SUCCESS);
  CUgraphNodeParams wait = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  wait.eventWait.event = event;
  ASSERT_EQ(add(wait), CUDA_SUCCESS);
  launch_once();
  EXPECT_EQ(received, 5u);
  EXPECT_EQ(seen.value, 5u);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphNodeTest, AllocationNodeTellsItsAddress) {
  CUgraphNodeParams allocate = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  allocate.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocate.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  allocate.alloc.bytesize = 4096;
  ASSERT_EQ(add(allocate), CUDA_SUCCESS);
  ASSERT_NE(allocate.alloc.dptr, 0u);
  CUgraphNodeParams set = memset_of(allocate.alloc.dptr, 9);
  ASSERT_EQ(add(set), CUDA_SUCCESS);
  CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  copy.memcpy.copyCtx = primary;
  CUDA_MEMCPY3D& shape = copy.memcpy.copyParams;
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = allocate.alloc.dptr;
  shape.dstDevice = memory;
  shape.WidthInBytes = 64;
  shape.Height = shape.Depth = 1;
  ASSERT_EQ(add(copy), CUDA_SUCCESS);
  CUgraphNodeParams free = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  free.free.dptr = allocate.alloc.dptr;
  ASSERT_EQ(add(free), CUDA_SUCCESS);
  launch_once();
  unsigned read = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&read, memory, sizeof read), CUDA_SUCCESS);
  EXPECT_EQ(read, 9u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphNodeTest, AddNodeRefusesBadArguments) {
  CUgraphNode node = nullptr;
  CUgraphNodeParams unknown = of_type(static_cast<CUgraphNodeType>(99));
  EXPECT_EQ(add(unknown), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  CUgraphNodeParams empty = of_type(CU_GRAPH_NODE_TYPE_EMPTY);
  EXPECT_EQ(d.cuGraphAddNode_v2(&node, nullptr, nullptr, nullptr, 0, &empty),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphAddNode_v2(nullptr, graph, nullptr, nullptr, 0, &empty),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphAddNode(&node, graph, nullptr, 0, &empty), CUDA_SUCCESS) << "the first form";
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
