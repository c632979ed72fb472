// SPDX-License-Identifier: Apache-2.0
#include "plugin/job_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace ctxbroker::detail {
namespace {

bool has_graphs(const DriverTable& driver) noexcept {
  return driver.stream_begin_capture != nullptr && driver.stream_end_capture != nullptr &&
         driver.graph_destroy != nullptr && driver.graph_get_nodes != nullptr &&
         driver.graph_node_get_type != nullptr && driver.graph_instantiate != nullptr &&
         driver.graph_exec_update != nullptr && driver.graph_exec_destroy != nullptr &&
         driver.graph_launch != nullptr;
}

// What of a captured job decides what becomes of it.
struct Look {
  CUresult status = CUDA_SUCCESS;
  // Memory that a graph allocates belongs to its executable graph, which lives from job to job:
  // what one job allocates and another frees would be something else than without graphs.
  bool memory = false;
  // Of the clusters of all kernels: an executable graph cannot be given others. NVIDIA's driver
  // (580) says that it has been, and launches the old ones.
  std::uint64_t clusters = 0;
};

void add_cluster(const DriverTable& driver, CUgraphNode node, Look& look) noexcept {
  CUlaunchAttributeValue value{};
  if (driver.graph_kernel_node_get_attribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) !=
      CUDA_SUCCESS) {
    return;  // it has none
  }
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15;
  for (const unsigned int extent : {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}) {
    look.clusters = (look.clusters ^ extent) * factor;
  }
}

// Throws std::bad_alloc.
Look look_at(const DriverTable& driver, CUgraph graph, bool has_clusters) {
  Look look;
  std::size_t count = 0;
  look.status = driver.graph_get_nodes(graph, nullptr, &count);
  if (look.status != CUDA_SUCCESS || count == 0) return look;
  std::vector<CUgraphNode> nodes(count);
  look.status = driver.graph_get_nodes(graph, nodes.data(), &count);
  for (std::size_t index = 0; look.status == CUDA_SUCCESS && index < count; ++index) {
    CUgraphNodeType type{};
    look.status = driver.graph_node_get_type(nodes[index], &type);
    look.memory =
        look.memory || type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (has_clusters && type == CU_GRAPH_NODE_TYPE_KERNEL) add_cluster(driver, nodes[index], look);
  }
  return look;
}

}  // namespace

void JobGraph::give_up() noexcept {
  wanted_ = false;
  exec_.reset();
}

// Only this thread is kept from what a capture forbids, such as allocations: others go on.
JobGraph::Outcome JobGraph::begin(const DriverTable& driver, CUstream stream) noexcept {
  if (!has_graphs(driver)) return {CUDA_ERROR_NOT_SUPPORTED, "this driver has no graphs"};
  const OpenCaptures::Beginning beginning;
  const CUresult status = driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (status == CUDA_SUCCESS) capture_.emplace();
  return status == CUDA_SUCCESS ? Outcome{} : Outcome{status, "a capture cannot be begun"};
}

JobGraph::Outcome JobGraph::make(const std::shared_ptr<Lease>& lease, CUgraph graph) noexcept {
  const DriverTable& driver = lease->table();
  exec_.reset();
  CUgraphExec exec = nullptr;
  const CUresult status = driver.graph_instantiate(&exec, graph, 0);
  if (status != CUDA_SUCCESS) return {status, "no executable graph can be made of it"};
  exec_ = GraphExec(lease, exec);
  return {};
}

JobGraph::Outcome JobGraph::launch(const std::shared_ptr<Lease>& lease, CUstream stream,
                                   CUgraph graph) noexcept {
  const DriverTable& driver = lease->table();
  const bool has_clusters =
      lease->limits().clusters && driver.graph_kernel_node_get_attribute != nullptr;
  Look look;
  try {
    look = look_at(driver, graph, has_clusters);
  } catch (const std::bad_alloc&) {
    look.status = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (look.status != CUDA_SUCCESS) return {look.status, "the captured work cannot be looked at"};
  if (look.memory) {
    return {CUDA_ERROR_NOT_SUPPORTED, "it allocates or frees device memory in process"};
  }
  CUgraphExecUpdateResultInfo differs{};
  const bool fits = exec_ && look.clusters == clusters_;
  CUresult status =
      fits ? driver.graph_exec_update(exec_.get(), graph, &differs) : CUDA_ERROR_NOT_FOUND;
  if (loses_context(status)) return {status, "the graph cannot be brought up to date"};
  if (status != CUDA_SUCCESS) {
    const Outcome made = make(lease, graph);
    if (!made.ok()) return made;
    clusters_ = look.clusters;
  }
  status = driver.graph_launch(exec_.get(), stream);
  return status == CUDA_SUCCESS ? Outcome{} : Outcome{status, "the graph cannot be launched"};
}

JobGraph::Outcome JobGraph::end(const std::shared_ptr<Lease>& lease, CUstream stream,
                                bool launch_it) noexcept {
  const DriverTable& driver = lease->table();
  CUgraph graph = nullptr;
  const CUresult status = driver.stream_end_capture(stream, &graph);
  if (status != CUDA_SUCCESS || graph == nullptr) {
    // An invalid capture has ended. Had the call itself failed, the stream would go on capturing:
    // the second call ends that, or finds nothing to end.
    if (driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS) driver.graph_destroy(graph);
    capture_.reset();
    return {status, "it does something that cannot be captured"};
  }
  const Outcome outcome = launch_it ? launch(lease, stream, graph) : Outcome{};
  capture_.reset();  // after the launch, so that frees wait for the job
  driver.graph_destroy(graph);
  return outcome;
}

}  // namespace ctxbroker::detail
