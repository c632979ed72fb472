// SPDX-License-Identifier: Apache-2.0
#include "api/graph.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/event.hpp"
#include "api/graph_memory.hpp"
#include "api/launch.hpp"
#include "api/logs.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

template <class Table, class Handle>
auto find_in(const Table& table, Handle handle) {
  try {
    return table.find(handle);
  } catch (const Failure&) {
    fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// Memory comes and goes with the calls. What was allocated is freed again when a later step cannot
// be done.
void change_memory(const GraphExec& exec) {
  std::vector<CUdeviceptr> allocated;
  MemoryRegistry& memory = Process::instance().memory;
  try {
    for (const GraphExec::Step& step : exec.steps) {
      const Operation& operation = step.operation;
      if (operation.memory != nullptr) {
        operation.memory->allocate(exec.frees_on_launch);
        allocated.push_back(operation.memory->address());
      }
      if (operation.freed != 0) {
        free_graph_memory(*memory.check_range(operation.freed, 1));
        std::erase(allocated, operation.freed);
      }
    }
  } catch (...) {
    for (CUdeviceptr address : allocated) free_graph_memory(*memory.check_range(address, 1));
    throw;
  }
}

// What must hold when it is launched, not only when it was described.
void check_step(const Operation& operation, const Stream& stream) {
  check_that(operation.device == nullptr || operation.device == &stream.context.device,
             CUDA_ERROR_NOT_SUPPORTED);
  if (operation.kernel != nullptr) check_loaded(*operation.kernel);
}

std::shared_ptr<Command> command_of(const Operation& operation,
                                    const std::shared_ptr<GraphExec>& exec) {
  if (operation.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) return operation.event->new_record();
  auto command = std::make_shared<Command>();
  command->kind = operation.kind;
  command->uses = operation.uses;
  if (operation.work != nullptr) command->work = [work = operation.work, exec] { return work(); };
  if (operation.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
    if (std::shared_ptr<Command> recorded = operation.event->latest())
      command->after.push_back(std::move(recorded));
  return command;
}

}  // namespace

std::mutex& graphs_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::shared_ptr<Graph> find_graph(CUgraph handle) {
  return find_in(Process::instance().graphs, handle);
}
std::shared_ptr<GraphNode> find_node(CUgraphNode handle) {
  return find_in(Process::instance().graph_nodes, handle);
}
std::shared_ptr<GraphExec> find_exec(CUgraphExec handle) {
  return find_in(Process::instance().graph_execs, handle);
}

std::shared_ptr<GraphNode> add_node(const std::shared_ptr<Graph>& graph, Operation operation,
                                    std::vector<std::shared_ptr<GraphNode>> after) {
  for (std::size_t i = 0; i < after.size(); ++i) {
    check_value(after[i]->graph.lock() == graph);
    check_value(std::find(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(i),
                          after[i]) == after.begin() + static_cast<std::ptrdiff_t>(i));
  }
  auto node = std::make_shared<GraphNode>();
  node->graph = graph;
  node->operation = std::move(operation);
  node->after = std::move(after);
  graph->nodes.push_back(node);
  Process::instance().graph_nodes.insert(node, [] {});
  return node;
}

void forget_graph(const std::shared_ptr<Graph>& graph) {
  Process& process = Process::instance();
  for (const auto& node : graph->nodes) {
    process.graph_nodes.take(node->handle);
    node->after.clear();  // no chain of nodes is freed in one go
  }
  graph->nodes.clear();
  if (graph->handle != nullptr) process.graphs.take(graph->handle);
}

std::vector<std::shared_ptr<GraphNode>> in_order(const Graph& graph) {
  std::map<const GraphNode*, std::size_t> missing;
  std::map<const GraphNode*, std::vector<std::shared_ptr<GraphNode>>> next;
  std::vector<std::shared_ptr<GraphNode>> order;
  for (const auto& node : graph.nodes) {
    missing[node.get()] = node->after.size();
    for (const auto& before : node->after) next[before.get()].push_back(node);
    if (node->after.empty()) order.push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const auto& node : next[order[i].get()])
      if (--missing[node.get()] == 0) order.push_back(node);
  check_value(order.size() == graph.nodes.size());
  return order;
}

void check_plain(const CUgraphEdgeData* edges, std::size_t count) {
  for (std::size_t i = 0; edges != nullptr && i < count; ++i)
    if (edges[i].from_port != 0 || edges[i].to_port != 0 || edges[i].type != 0)
      refuse("an edge of a graph with a port or a type");
}

Operation allocation(Device& device, std::size_t bytes) {
  check_value(bytes != 0);
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  operation.device = &device;
  operation.memory = std::make_shared<GraphMemory>(device, bytes);
  return operation;
}

Operation freeing(CUdeviceptr address) {
  std::shared_ptr<Block> block = Process::instance().memory.find(address);
  check_value(block != nullptr && block->begin == address && block->kind == Block::Kind::graph);
  Operation operation;
  operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  operation.freed = address;
  return operation;
}

void launch_graph(const std::shared_ptr<GraphExec>& exec, const std::shared_ptr<Stream>& stream) {
  refuse_in_capture(*stream, CUDA_ERROR_NOT_SUPPORTED);  // child graphs are not built
  std::lock_guard lock(exec->mutex);
  for (const GraphExec::Step& step : exec->steps) check_step(step.operation, *stream);
  change_memory(*exec);
  auto begin = std::make_shared<Command>();
  if (exec->last_command != nullptr) begin->after.push_back(exec->last_command);
  enqueue(stream, begin);
  exec->last_command = begin;
  for (const GraphExec::Step& step : exec->steps) {
    std::shared_ptr<Command> command = command_of(step.operation, exec);
    enqueue(stream, command);
    exec->last_command = command;
    if (step.operation.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
      step.operation.event->set_latest(command);
  }
}

}  // namespace ctxbroker::software
