// SPDX-License-Identifier: Apache-2.0
// cuGraphAdd*Node and what is asked of nodes and set in them.
#include <algorithm>

#include "api/context.hpp"
#include "api/copy.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/event.hpp"
#include "api/graph.hpp"
#include "api/graph_memory.hpp"
#include "api/launch.hpp"
#include "api/logs.hpp"

using namespace ctxbroker::software;

namespace {

struct Dependencies {
  const CUgraphNode* nodes;
  std::size_t count;
};

CUresult add(CUgraphNode* node, CUgraph graph, const Dependencies& dependencies,
             const std::function<Operation()>& make) {
  return working([&] {
    check_value(node != nullptr);
    check_value(dependencies.count == 0 || dependencies.nodes != nullptr);
    std::shared_ptr<Graph> found = find_graph(graph);
    std::vector<std::shared_ptr<GraphNode>> after;
    for (std::size_t i = 0; i < dependencies.count; ++i)
      after.push_back(find_node(dependencies.nodes[i]));
    Operation operation = make();
    std::lock_guard lock(graphs_mutex());
    *node = add_node(found, std::move(operation), std::move(after))->handle;
  });
}

// Either version of a kernel node's parameters. The first knows no kernels of libraries.
CUDA_KERNEL_NODE_PARAMS_v2 present(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

// A function says where it runs; a library's kernel runs in the context named, or the current one.
Context& context_of(const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  if (p.func != nullptr && kind_of(p.func) != HandleKind::kernel)
    return Process::instance().functions.find(p.func)->context;
  return p.func == nullptr && p.ctx != nullptr ? living_context(p.ctx).owner : working_owner();
}

// `before`: what the node did until now, or null; a cooperative launch stays one.
Operation kernel_operation(const CUDA_KERNEL_NODE_PARAMS_v2& p, const Operation* before = nullptr) {
  check_value(p.func != nullptr || p.kern != nullptr);
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_KERNEL;
  operation.kind = Command::Kind::kernel;
  LaunchRequest request;
  request.function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  request.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  request.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  request.dynamic_shared = p.sharedMemBytes;
  request.parameters = p.kernelParams;
  request.extra = p.extra;
  request.cooperative = before != nullptr && before->kernel->cooperative;
  operation.kernel = make_call(request, context_of(p));
  operation.work = work_of(operation.kernel);
  operation.uses = operation.kernel->module.get();
  operation.device = &operation.kernel->function->context.device;
  return operation;
}

std::shared_ptr<GraphNode> find_kernel_node(CUgraphNode node) {
  std::shared_ptr<GraphNode> found = find_node(node);
  check_value(found->operation.type == CU_GRAPH_NODE_TYPE_KERNEL);
  return found;
}

// A graph does not move a kernel to another context.
void check_same_context(const Operation& before, const Operation& now) {
  check_value(&before.kernel->function->context == &now.kernel->function->context);
}

void set_in_node(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  std::shared_ptr<GraphNode> found = find_kernel_node(node);
  Operation operation = kernel_operation(parameters, &found->operation);
  std::lock_guard lock(graphs_mutex());
  check_same_context(found->operation, operation);
  found->operation = std::move(operation);
  found->parameters.clear();
}

// With the mutex of the executable graph held.
GraphExec::Step& find_step(GraphExec& exec, CUgraphNode node) {
  auto step = std::find_if(exec.steps.begin(), exec.steps.end(),
                           [&](const GraphExec::Step& one) { return one.node == node; });
  check_value(step != exec.steps.end());
  return *step;
}

void set_in_exec(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  std::shared_ptr<GraphExec> found = find_exec(exec);
  Operation operation = kernel_operation(parameters, &find_kernel_node(node)->operation);
  std::lock_guard lock(found->mutex);
  GraphExec::Step& step = find_step(*found, node);
  check_same_context(step.operation, operation);
  step.operation = std::move(operation);
}

// The pointers stay valid as long as the node keeps its parameters.
template <class Parameters>
CUresult get_parameters(CUgraphNode node, Parameters* parameters) {
  return initialised([&] {
    check_value(parameters != nullptr);
    std::shared_ptr<GraphNode> found = find_kernel_node(node);
    std::lock_guard lock(graphs_mutex());
    const KernelCall& call = *found->operation.kernel;
    found->parameters.clear();
    for (const exec::KernelParameter& parameter : call.function->kernel.parameters)
      found->parameters.push_back(const_cast<std::byte*>(call.arguments.data() + parameter.offset));
    *parameters = {};
    parameters->func = call.function->handle;
    parameters->gridDimX = call.grid.x;
    parameters->gridDimY = call.grid.y;
    parameters->gridDimZ = call.grid.z;
    parameters->blockDimX = call.block.x;
    parameters->blockDimY = call.block.y;
    parameters->blockDimZ = call.block.z;
    parameters->sharedMemBytes = call.dynamic_shared;
    parameters->kernelParams = found->parameters.data();
  });
}

template <class Parameters>
const Parameters& given(const Parameters* parameters) {
  check_value(parameters != nullptr);
  return *parameters;
}

Operation copy_operation(const CUDA_MEMCPY3D& parameters, CUcontext context) {
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  operation.kind = Command::Kind::transfer;
  operation.device = &living_context(context).device;
  operation.work = copy_work(shaped_copy(parameters));
  return operation;
}

Operation fill_operation(const CUDA_MEMSET_NODE_PARAMS& p, CUcontext context) {
  check_value(p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4);
  check_value(p.width != 0 && p.height != 0 && p.width <= SIZE_MAX / p.elementSize);
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_MEMSET;
  operation.kind = Command::Kind::transfer;
  operation.device = &living_context(context).device;
  operation.work =
      fill_work(p.dst, p.pitch, {p.value, p.elementSize}, {p.width * p.elementSize, p.height, 1});
  return operation;
}

Operation host_operation(const CUDA_HOST_NODE_PARAMS& parameters) {
  check_value(parameters.fn != nullptr);
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_HOST;
  operation.kind = Command::Kind::host_function;
  operation.host = parameters;
  operation.work = [parameters] {
    parameters.fn(parameters.userData);
    return CUDA_SUCCESS;
  };
  return operation;
}

std::shared_ptr<GraphNode> find_host_node(CUgraphNode node) {
  std::shared_ptr<GraphNode> found = find_node(node);
  check_value(found->operation.type == CU_GRAPH_NODE_TYPE_HOST);
  return found;
}

Operation event_operation(CUevent event, CUgraphNodeType type) {
  Operation operation;
  operation.type = type;
  operation.event = Process::instance().events.find(event);
  return operation;
}

// The address is the node's answer.
Operation allocation_operation(const CUmemPoolProps& properties, std::size_t bytes,
                               CUdeviceptr& address) {
  check_value(properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
              properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
              properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  Operation operation = allocation(find_device(properties.location.id), bytes);
  address = operation.memory->address();
  return operation;
}

const char* name_of(CUgraphNodeType type) {
  switch (static_cast<int>(type)) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "a child graph";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "a graph's node for an external semaphore";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "a graph's node for stream memory operations";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "a conditional node of a graph";
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// Of any type, as cuGraphAddNode takes it.
Operation any_operation(CUgraphNodeParams& p) {
  check_value(p.reserved0[0] == 0 && p.reserved0[1] == 0 && p.reserved0[2] == 0 &&
              p.reserved2 == 0);
  switch (static_cast<int>(p.type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& k = p.kernel;
      return kernel_operation({k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY,
                               k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, k.kern,
                               k.ctx});
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      check_value(p.memcpy.flags == 0);
      return copy_operation(p.memcpy.copyParams, p.memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& m = p.memset;
      return fill_operation({m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, m.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_operation({p.host.fn, p.host.userData});
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return {};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_operation(p.eventWait.event, p.type);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_operation(p.eventRecord.event, p.type);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return allocation_operation(p.alloc.poolProps, p.alloc.bytesize, p.alloc.dptr);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return freeing(p.free.dptr);
    default:
      refuse(name_of(p.type));
  }
}

CUresult add_any(CUgraphNode* node, CUgraph graph, const Dependencies& dependencies,
                 const CUgraphEdgeData* edges, CUgraphNodeParams* parameters) {
  return add(node, graph, dependencies, [&] {
    check_value(parameters != nullptr);
    check_plain(edges, dependencies.count);
    return any_operation(*parameters);
  });
}

}  // namespace

CTXB_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph,
                                          const CUgraphNode* dependencies, std::size_t count,
                                          const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return kernel_operation(present(given(parameters))); });
}
CTXB_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph,
                                             const CUgraphNode* dependencies, std::size_t count,
                                             const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return kernel_operation(given(parameters)); });
}

CTXB_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node,
                                                CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CTXB_COUNT_CALL();
  return get_parameters(node, parameters);
}
CTXB_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                                   CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  CTXB_COUNT_CALL();
  return get_parameters(node, parameters);
}
CTXB_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CTXB_COUNT_CALL();
  return working([&] { set_in_node(node, present(given(parameters))); });
}
CTXB_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  CTXB_COUNT_CALL();
  return working([&] { set_in_node(node, given(parameters)); });
}
CTXB_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CTXB_COUNT_CALL();
  return working([&] { set_in_exec(exec, node, present(given(parameters))); });
}
CTXB_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  CTXB_COUNT_CALL();
  return working([&] { set_in_exec(exec, node, given(parameters)); });
}

CTXB_EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph,
                                          const CUgraphNode* dependencies, std::size_t count,
                                          const CUDA_MEMCPY3D* parameters, CUcontext context) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return copy_operation(given(parameters), context); });
}
CTXB_EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                                          const CUgraphNode* dependencies, std::size_t count,
                                          const CUDA_MEMSET_NODE_PARAMS* parameters,
                                          CUcontext context) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return fill_operation(given(parameters), context); });
}
CTXB_EXPORT CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph,
                                        const CUgraphNode* dependencies, std::size_t count,
                                        const CUDA_HOST_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count}, [&] { return host_operation(given(parameters)); });
}
CTXB_EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(parameters != nullptr);
    std::shared_ptr<GraphNode> found = find_host_node(node);
    std::lock_guard lock(graphs_mutex());
    *parameters = found->operation.host;
  });
}
CTXB_EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return working([&] {
    Operation operation = host_operation(given(parameters));
    std::shared_ptr<GraphNode> found = find_host_node(node);
    std::lock_guard lock(graphs_mutex());
    found->operation = std::move(operation);
  });
}
CTXB_EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_HOST_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return working([&] {
    Operation operation = host_operation(given(parameters));
    find_host_node(node);
    std::shared_ptr<GraphExec> found = find_exec(exec);
    std::lock_guard lock(found->mutex);
    find_step(*found, node).operation = std::move(operation);
  });
}
CTXB_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph,
                                         const CUgraphNode* dependencies, std::size_t count) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count}, [] { return Operation(); });
}
CTXB_EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                               const CUgraphNode* dependencies, std::size_t count,
                                               CUevent event) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return event_operation(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD); });
}
CTXB_EXPORT CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph,
                                             const CUgraphNode* dependencies, std::size_t count,
                                             CUevent event) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count},
             [&] { return event_operation(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT); });
}

// The parameters' address is the node's answer.
CTXB_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph,
                                            const CUgraphNode* dependencies, std::size_t count,
                                            CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count}, [&] {
    return allocation_operation(given(parameters).poolProps, parameters->bytesize,
                                parameters->dptr);
  });
}
CTXB_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph,
                                           const CUgraphNode* dependencies, std::size_t count,
                                           CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return add(node, graph, {dependencies, count}, [&] { return freeing(address); });
}

CTXB_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                    const CUgraphNode* dependencies, std::size_t count,
                                    CUgraphNodeParams* parameters) {
  CTXB_COUNT_CALL();
  return add_any(node, graph, {dependencies, count}, nullptr, parameters);
}
CTXB_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph,
                                       const CUgraphNode* dependencies,
                                       const CUgraphEdgeData* edges, std::size_t count,
                                       CUgraphNodeParams* parameters) {
  CTXB_COUNT_CALL();
  return add_any(node, graph, {dependencies, count}, edges, parameters);
}

CTXB_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                                  CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    std::lock_guard lock(graphs_mutex());
    const std::shared_ptr<GraphMemory>& memory = found->operation.memory;
    check_value(parameters != nullptr && memory != nullptr);
    *parameters = {};
    parameters->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters->poolProps.location.id = memory->device().ordinal;
    parameters->bytesize = memory->bytes();
    parameters->dptr = memory->address();
  });
}
CTXB_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    std::lock_guard lock(graphs_mutex());
    check_value(address != nullptr && found->operation.freed != 0);
    *address = found->operation.freed;
  });
}

CTXB_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    check_value(type != nullptr);
    std::lock_guard lock(graphs_mutex());
    *type = found->operation.type;
  });
}
