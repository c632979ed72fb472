// SPDX-License-Identifier: Apache-2.0
// Graphs: work that is described once and launched often. A launch puts the nodes one after the
// other, in an order that their dependencies allow, into the stream it is launched in.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "api/command.hpp"
#include "api/cuda_api.hpp"
#include "api/user_object.hpp"

namespace ctxbroker::software {

class Device;
class GraphMemory;
struct Event;
struct Graph;
struct KernelCall;
struct Stream;

// What a node does, in each launch anew.
struct Operation {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Command::Kind kind = Command::Kind::marker;
  std::function<CUresult()> work;            // null: nothing
  const void* uses = nullptr;                // see Command
  const Device* device = nullptr;            // that must do it; null: any
  std::shared_ptr<const KernelCall> kernel;  // of a kernel node
  std::shared_ptr<Event> event;              // to record or to wait for
  std::shared_ptr<GraphMemory> memory;       // of a node that allocates
  CUdeviceptr freed = 0;                     // of a node that frees
  CUDA_HOST_NODE_PARAMS host{};              // of a host node
};

struct GraphNode {
  CUgraphNode handle = nullptr;
  std::weak_ptr<Graph> graph;
  Operation operation;
  std::vector<std::shared_ptr<GraphNode>> after;  // what must be done first; no node twice
  std::vector<void*> parameters;                  // told by cuGraphKernelNodeGetParams
};

// All members under graphs_mutex().
struct Graph {
  CUgraph handle = nullptr;
  std::vector<std::shared_ptr<GraphNode>> nodes;  // as they were added
  UserObjectHolds user_objects;
  bool in_capture = false;  // and so not to be destroyed
};

struct GraphExec {
  struct Step {
    CUgraphNode node;
    Operation operation;
    std::vector<std::size_t> after;  // steps that it depends on
  };
  GraphExec(std::vector<Step> its_steps, const Graph& of, bool frees)
      : steps(std::move(its_steps)), frees_on_launch(frees), user_objects(of.user_objects) {}

  CUgraphExec handle = nullptr;
  std::mutex mutex;                       // of the next two
  std::vector<Step> steps;                // in a legal order
  std::shared_ptr<Command> last_command;  // of the last launch; null before the first
  const bool frees_on_launch;             // what its last launch has left allocated
  const UserObjectHolds user_objects;
};

// One for the structure of all graphs and captures: they change seldom, and together.
std::mutex& graphs_mutex();

// CUDA_ERROR_INVALID_VALUE for what is none, as these calls say.
std::shared_ptr<Graph> find_graph(CUgraph handle);
std::shared_ptr<GraphNode> find_node(CUgraphNode handle);
std::shared_ptr<GraphExec> find_exec(CUgraphExec handle);

// With graphs_mutex() held: adds a node. CUDA_ERROR_INVALID_VALUE for a dependency that is of
// another graph or named twice.
std::shared_ptr<GraphNode> add_node(const std::shared_ptr<Graph>& graph, Operation operation,
                                    std::vector<std::shared_ptr<GraphNode>> after);
// Edges that say more than that they are: only between kernels that the software device has not.
// CUDA_ERROR_NOT_SUPPORTED.
void check_plain(const CUgraphEdgeData* edges, std::size_t count);
// With graphs_mutex() held: takes a graph and its nodes out of the process's tables.
void forget_graph(const std::shared_ptr<Graph>& graph);

// With graphs_mutex() held: the nodes in an order that their dependencies allow;
// CUDA_ERROR_INVALID_VALUE when there is none.
std::vector<std::shared_ptr<GraphNode>> in_order(const Graph& graph);

// The same as an executable graph's steps.
std::vector<GraphExec::Step> steps_of(const Graph& graph);

// Puts what the graph's nodes do into an executable graph of the same shape. Otherwise nothing
// changes, and the result says where they differ. Takes graphs_mutex().
CUgraphExecUpdateResultInfo update_exec(GraphExec& exec, const Graph& graph);

// What these nodes do. CUDA_ERROR_INVALID_VALUE for what no graph may allocate or free.
Operation allocation(Device& device, std::size_t bytes);
Operation freeing(CUdeviceptr address);

void launch_graph(const std::shared_ptr<GraphExec>& exec, const std::shared_ptr<Stream>& stream);

}  // namespace ctxbroker::software
