#include "plugin/job_graph.hpp"

#include <cstddef>
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

// Memory that a graph allocates belongs to its executable graph, which lives from job to job: what
// one job allocates and another frees would be something else than without graphs.
CUresult look_for_memory(const DriverTable& driver, CUgraph graph, bool& found) {
  std::size_t count = 0;
  CUresult status = driver.graph_get_nodes(graph, nullptr, &count);
  if (status != CUDA_SUCCESS) return status;
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) status = driver.graph_get_nodes(graph, nodes.data(), &count);
  for (std::size_t index = 0; status == CUDA_SUCCESS && index < count; ++index) {
    CUgraphNodeType type{};
    status = driver.graph_node_get_type(nodes[index], &type);
    found = found || type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  }
  return status;
}

}  // namespace

void JobGraph::give_up() noexcept {
  wanted_ = false;
  exec_.reset();
}

// Only this thread is kept from what a capture forbids, such as allocations: others go on.
JobGraph::Outcome JobGraph::begin(const DriverTable& driver, CUstream stream) noexcept {
  if (!has_graphs(driver)) return {CUDA_ERROR_NOT_SUPPORTED, "this driver has no graphs"};
  const CUresult status = driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return status == CUDA_SUCCESS ? Outcome{} : Outcome{status, "a capture cannot be begun"};
}

JobGraph::Outcome JobGraph::make(const std::shared_ptr<Lease>& lease, CUgraph graph) noexcept {
  const DriverTable& driver = lease->table();
  exec_.reset();
  bool memory = false;
  try {
    const CUresult status = look_for_memory(driver, graph, memory);
    if (status != CUDA_SUCCESS) return {status, "the captured work cannot be looked at"};
  } catch (const std::bad_alloc&) {
    return {CUDA_ERROR_OUT_OF_MEMORY, "the captured work cannot be looked at"};
  }
  if (memory) return {CUDA_SUCCESS, "it allocates or frees device memory in process"};
  CUgraphExec exec = nullptr;
  const CUresult status = driver.graph_instantiate(&exec, graph, 0);
  if (status != CUDA_SUCCESS) return {status, "no executable graph can be made of it"};
  exec_ = GraphExec(lease, exec);
  return {};
}

JobGraph::Outcome JobGraph::launch(const std::shared_ptr<Lease>& lease, CUstream stream,
                                   CUgraph graph) noexcept {
  const DriverTable& driver = lease->table();
  CUgraphExecUpdateResultInfo differs{};
  CUresult status =
      exec_ ? driver.graph_exec_update(exec_.get(), graph, &differs) : CUDA_ERROR_NOT_FOUND;
  if (loses_context(status)) return {status, "the graph cannot be brought up to date"};
  if (status != CUDA_SUCCESS) {
    const Outcome made = make(lease, graph);
    if (!made.ok()) return made;
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
    return {status, "it does something that cannot be captured"};
  }
  const Outcome outcome = launch_it ? launch(lease, stream, graph) : Outcome{};
  driver.graph_destroy(graph);
  return outcome;
}

}  // namespace ctxbroker::detail
