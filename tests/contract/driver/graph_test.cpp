// SPDX-License-Identifier: Apache-2.0
// Graphs made by hand, their nodes, and what is tied to their life.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class GraphTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemsetD32_v2(memory, 0, 1024), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(d.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  }
  CUgraphNode fill_node(unsigned value, std::vector<CUgraphNode> after = {}) {
    arguments = {&memory, &(last_value = value), &count};
    CUDA_KERNEL_NODE_PARAMS parameters = kernel("fill");
    CUgraphNode node = nullptr;
    EXPECT_EQ(d.cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &parameters),
              CUDA_SUCCESS);
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS kernel(const char* name) {
    CUDA_KERNEL_NODE_PARAMS parameters = {};
    parameters.func = function(name);
    parameters.gridDimX = 8;
    parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = 128;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments.data();
    return parameters;
  }
  CUgraphExec instantiate() const {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }
  void launch_graph(CUgraphExec exec) const {
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  void launch_once() const {
    CUgraphExec exec = instantiate();
    launch_graph(exec);
    EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }
  unsigned value() const {
    unsigned read = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&read, memory, sizeof read), CUDA_SUCCESS);
    return read;
  }
  std::size_t nodes(CUgraph of) const {
    std::size_t found = 0;
    EXPECT_EQ(d.cuGraphGetNodes(of, nullptr, &found), CUDA_SUCCESS);
    return found;
  }

  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr memory = 0;
  unsigned last_value = 0, count = 1024;
  std::vector<void*> arguments;
};

TEST_F(GraphTest, RunsNodesOfEachKindInTheirOrder) {
  CUgraphNode nodes_made[4] = {};
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = memory;
  set.value = 4;
  set.elementSize = 4;
  set.width = count;
  set.height = 1;
  ASSERT_EQ(d.cuGraphAddMemsetNode(&nodes_made[0], graph, nullptr, 0, &set, primary), CUDA_SUCCESS);
  arguments = {&memory, &count};
  CUDA_KERNEL_NODE_PARAMS add = kernel("add_one");
  ASSERT_EQ(d.cuGraphAddKernelNode_v2(&nodes_made[1], graph, &nodes_made[0], 1, &add),
            CUDA_SUCCESS);
  unsigned received = 0;
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = &received;
  copy.WidthInBytes = sizeof received;
  copy.Height = copy.Depth = 1;
  ASSERT_EQ(d.cuGraphAddMemcpyNode(&nodes_made[2], graph, &nodes_made[1], 1, &copy, primary),
            CUDA_SUCCESS);
  struct Seen {
    const unsigned* source;
    unsigned value;
  } seen = {&received, 0};
  CUDA_HOST_NODE_PARAMS host = {};
  host.fn = [](void* data) {
    auto& to = *static_cast<Seen*>(data);
    to.value = *to.source;
  };
  host.userData = &seen;
  ASSERT_EQ(d.cuGraphAddHostNode(&nodes_made[3], graph, &nodes_made[2], 1, &host), CUDA_SUCCESS);
  const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL,
                                   CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST};
  for (int i = 0; i < 4; ++i) {
    CUgraphNodeType type{};
    EXPECT_EQ(d.cuGraphNodeGetType(nodes_made[i], &type), CUDA_SUCCESS);
    EXPECT_EQ(type, types[i]);
  }
  launch_once();
  EXPECT_EQ(received, 5u);
  EXPECT_EQ(seen.value, 5u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, GraphIsChangedAndCloned) {
  CUgraphNode first = fill_node(1), second = fill_node(2), empty = nullptr;
  EXPECT_EQ(d.cuGraphAddDependencies(graph, &first, &second, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphAddDependencies(graph, &first, &second, 1), CUDA_ERROR_INVALID_VALUE)
      << "it is there already";
  ASSERT_EQ(d.cuGraphAddEmptyNode(&empty, graph, &second, 1), CUDA_SUCCESS);
  CUgraphNode found[4] = {};
  std::size_t room = 4;
  EXPECT_EQ(d.cuGraphNodeGetDependencies(second, found, &room), CUDA_SUCCESS);
  ASSERT_EQ(room, 1u);
  EXPECT_EQ(found[0], first);
  room = 4;
  EXPECT_EQ(d.cuGraphGetRootNodes(graph, found, &room), CUDA_SUCCESS);
  ASSERT_EQ(room, 1u);
  EXPECT_EQ(found[0], first);
  CUgraph clone = nullptr;
  ASSERT_EQ(d.cuGraphClone(&clone, graph), CUDA_SUCCESS);
  EXPECT_EQ(nodes(clone), 3u);
  EXPECT_EQ(d.cuGraphDestroyNode(second), CUDA_SUCCESS);
  EXPECT_EQ(nodes(graph), 2u);
  EXPECT_EQ(nodes(clone), 3u) << "on its own";
  launch_once();
  EXPECT_EQ(value(), 1u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  graph = clone;
  launch_once();
  EXPECT_EQ(value(), 2u);
  EXPECT_EQ(d.cuGraphDestroy(clone), CUDA_SUCCESS);
}

TEST_F(GraphTest, ACircleIsRefused) {
  CUgraphNode first = fill_node(1), second = fill_node(2, {first});
  EXPECT_EQ(d.cuGraphAddDependencies(graph, &second, &first, 1), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, KernelNodeOfAnExecutableGraphTakesNewArguments) {
  CUgraphNode node = fill_node(1);
  CUgraphExec exec = instantiate();
  CUDA_KERNEL_NODE_PARAMS parameters = {};
  ASSERT_EQ(d.cuGraphKernelNodeGetParams_v2(node, &parameters), CUDA_SUCCESS);
  EXPECT_EQ(parameters.func, function("fill"));
  EXPECT_EQ(*static_cast<unsigned*>(parameters.kernelParams[1]), 1u);
  last_value = 7;
  parameters.kernelParams = arguments.data();
  EXPECT_EQ(d.cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters), CUDA_SUCCESS);
  launch_graph(exec);
  EXPECT_EQ(value(), 7u);
  ASSERT_EQ(d.cuGraphKernelNodeGetParams_v2(node, &parameters), CUDA_SUCCESS);
  EXPECT_EQ(*static_cast<unsigned*>(parameters.kernelParams[1]), 1u) << "the node is as it was";
  last_value = 8;
  parameters.kernelParams = arguments.data();
  EXPECT_EQ(d.cuGraphKernelNodeSetParams_v2(node, &parameters), CUDA_SUCCESS);
  launch_graph(exec);
  EXPECT_EQ(value(), 7u) << "what was made of it before is as it was";
  launch_once();
  EXPECT_EQ(value(), 8u);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, ExecutableGraphIsUpdatedByAGraphOfTheSameShape) {
  CUgraphNode first = fill_node(1);
  fill_node(2, {first});
  CUgraphExec exec = instantiate();
  const CUgraph original = graph;
  // Replaces `graph`; returns the status of bringing `exec` up to it.
  CUgraphExecUpdateResultInfo info = {};
  const auto update_to = [&](const std::function<void()>& build) {
    EXPECT_EQ(d.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    build();
    const CUresult status = d.cuGraphExecUpdate_v2(exec, graph, &info);
    EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
    return status;
  };
  EXPECT_EQ(update_to([&] { fill_node(6, {fill_node(5)}); }), CUDA_SUCCESS);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  launch_graph(exec);
  EXPECT_EQ(value(), 6u) << "of a graph that is destroyed";
  EXPECT_EQ(update_to([&] { fill_node(7); }), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CUgraphNode set_node = nullptr;
  EXPECT_EQ(update_to([&] {
              CUDA_MEMSET_NODE_PARAMS set = {};
              set.dst = memory;
              set.value = 4;
              set.elementSize = 4;
              set.width = count;
              set.height = 1;
              CUgraphNode before = fill_node(5);
              EXPECT_EQ(d.cuGraphAddMemsetNode(&set_node, graph, &before, 1, &set, primary),
                        CUDA_SUCCESS);
            }),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_EQ(info.errorNode, set_node);
  ASSERT_EQ(d.cuMemsetD32_v2(memory, 0, 1024), CUDA_SUCCESS);
  launch_graph(exec);
  EXPECT_EQ(value(), 6u) << "what fails changes nothing";
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(original), CUDA_SUCCESS);
}

TEST_F(GraphTest, EventOfAGraphIsWaitedForFromOutside) {
  CUevent event = nullptr;
  CUgraphNode node = nullptr, record = nullptr;
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  node = fill_node(6);
  ASSERT_EQ(d.cuGraphAddEventRecordNode(&record, graph, &node, 1, event), CUDA_SUCCESS);
  CUgraphExec exec = instantiate();
  {
    Hold hold(function("hold"), stream);
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(value(), 6u);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

// Memory that the graph allocates, and may free, itself.
class GraphMemoryTest : public GraphTest {
 protected:
  static constexpr std::size_t bytes = std::size_t{4} << 20;

  CUdeviceptr add_allocation(CUgraphNode* node) const {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.poolProps.location.id = device;
    parameters.bytesize = bytes;
    EXPECT_EQ(d.cuGraphAddMemAllocNode(node, graph, nullptr, 0, &parameters), CUDA_SUCCESS);
    return parameters.dptr;
  }
  // NVIDIA's driver counts what it keeps for the next launch, until it is told to trim.
  void expect_none_used() const {
    EXPECT_EQ(d.cuDeviceGraphMemTrim(device), CUDA_SUCCESS);
    EXPECT_EQ(figure(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0u);
  }
  cuuint64_t figure(CUgraphMem_attribute which) const {
    cuuint64_t value = 0;
    EXPECT_EQ(d.cuDeviceGetGraphMemAttribute(device, which, &value), CUDA_SUCCESS);
    return value;
  }
  // Checks that the memory can be written and read.
  void use(CUdeviceptr address) const {
    unsigned read = 0;
    EXPECT_EQ(d.cuMemsetD32Async(address, 11, bytes / 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&read, address + bytes - 4, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(read, 11u);
  }
};

TEST_F(GraphMemoryTest, GraphMemoryIsAllocatedAndFreedByItsNodes) {
  cuuint64_t none = 0;
  CUgraphNode allocated = nullptr, freed = nullptr;
  EXPECT_EQ(d.cuDeviceGraphMemTrim(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none),
            CUDA_SUCCESS);
  const CUdeviceptr address = add_allocation(&allocated);
  ASSERT_NE(address, 0u);
  ASSERT_EQ(d.cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, address), CUDA_SUCCESS);
  CUDA_MEM_ALLOC_NODE_PARAMS told = {};
  CUdeviceptr told_address = 0;
  EXPECT_EQ(d.cuGraphMemAllocNodeGetParams(allocated, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.dptr, address);
  EXPECT_GE(told.bytesize, bytes);
  EXPECT_EQ(d.cuGraphMemFreeNodeGetParams(freed, &told_address), CUDA_SUCCESS);
  EXPECT_EQ(told_address, address);
  CUgraphExec exec = instantiate();
  launch_graph(exec);
  launch_graph(exec);
  EXPECT_GE(figure(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), bytes);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  expect_none_used();
  EXPECT_EQ(figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_EQ(d.cuDeviceGraphMemTrim(77), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(GraphMemoryTest, GraphMemoryOutlivesTheGraphUntilItIsFreed) {
  CUgraphNode node = nullptr;
  CUgraph copy = nullptr;
  const CUdeviceptr address = add_allocation(&node);
  ASSERT_NE(address, 0u);
  CUgraphExec exec = instantiate();
  launch_graph(exec);
  use(address);
  EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE) << "allocated still";
  EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  launch_graph(exec);
  EXPECT_NE(d.cuGraphClone(&copy, graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  use(address);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  expect_none_used();
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphMemoryTest, AllocationInACaptureBecomesGraphMemory) {
  CUdeviceptr address = 0;
  unsigned read = 0;
  ASSERT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocAsync(&address, bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(address, 13, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&read, address, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  CUgraph made = nullptr;
  ASSERT_EQ(d.cuStreamEndCapture(stream, &made), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(d.cuGraphInstantiateWithFlags(&exec, made, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    read = 0;
    launch_graph(exec);
    EXPECT_EQ(read, 13u);
  }
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(made), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  expect_none_used();
}

TEST_F(GraphTest, GraphRefusesForeignNodesAndBadArguments) {
  CUgraph other = nullptr;
  CUgraphNode foreign = nullptr, none = nullptr;
  ASSERT_EQ(d.cuGraphCreate(&other, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGraphAddEmptyNode(&foreign, other, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphAddEmptyNode(&none, graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphAddKernelNode_v2(&none, graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphCreate(&other, 5), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, AUserObjectEndsWithTheLastThatHoldsIt) {
  std::atomic<int> ended = 0;
  auto destroy = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  CUuserObject object = nullptr;
  ASSERT_EQ(d.cuUserObjectCreate(&object, &ended, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  fill_node(3);
  CUgraphExec exec = instantiate();
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  launch_graph(exec);
  EXPECT_EQ(ended, 0) << "what was made of the graph holds it too";
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return ended == 1; }));
  EXPECT_EQ(value(), 3u);

  ASSERT_EQ(d.cuUserObjectCreate(&object, &ended, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuUserObjectRetain(object, 2), CUDA_SUCCESS);
  EXPECT_EQ(d.cuUserObjectRelease(object, 2), CUDA_SUCCESS);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(d.cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return ended == 2; }));
  EXPECT_EQ(d.cuUserObjectCreate(&object, &ended, destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace ctxbroker::test
