// SPDX-License-Identifier: Apache-2.0
#include "gate/callback.hpp"

#include <cxxabi.h>

#include <csetjmp>
#include <cstdio>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "context/failed_work.hpp"
#include "context/thread_state.hpp"
#include "driver/driver_error.hpp"
#include "gate/rule.hpp"
#include "process/float_control.hpp"

namespace ctxbroker::detail {
namespace {

// ---- how a function ends ------------------------------------------------------------------------

enum class End : std::uint8_t { returned, threw, ended_thread };

struct Called {
  void (*run)(void*);
  void* data;
  char text[120] = "";  // that the exception brings
};

// The forced unwinding of a thread's end hands over no object, but a reference to null.
[[gnu::no_sanitize("null")]] End catch_exceptions(Called& called) {
  try {
    called.run(called.data);
    return End::returned;
  } catch (const abi::__forced_unwind&) {  // pthread_exit must not be caught
    throw;
  } catch (const std::exception& error) {
    std::snprintf(called.text, sizeof called.text, ": %s", error.what());
    return End::threw;
  } catch (...) {
    return End::threw;
  }
}

// pthread_exit unwinds the stack, and ends the process if anyone stops that. A jump leaves the
// unwinding behind: the C library only notes that the thread is exiting, so that it cannot be
// cancelled any more.
struct WayBack {
  std::jmp_buf& point;
  bool is_barred = true;
  ~WayBack() {
    if (is_barred) std::longjmp(point, 1);  // NOLINT(cert-err52-cpp): nothing else can stop it
  }
};

[[gnu::noinline]] End catch_end_of_thread(Called& called) {
  std::jmp_buf point;
  if (setjmp(point) != 0) return End::ended_thread;  // NOLINT(cert-err52-cpp)
  WayBack way{point};
  const End end = catch_exceptions(called);
  way.is_barred = false;
  return end;
}

// ---- functions of graphs -----------------------------------------------------------------------

struct GraphFunction {
  GatedTenant* tenant;
  CUhostFn function;
  void* data;
  mutable std::uint64_t calls = 0;  // that have given it to the driver, or are about to

  bool operator<(const GraphFunction& other) const noexcept {
    return std::tie(tenant, function, data) < std::tie(other.tenant, other.function, other.data);
  }
  void run() const noexcept {
    run_callback(*tenant, "cuGraphAddHostNode", nullptr, function, data);
  }
  static void CUDA_CB call(void* given) noexcept {
    static_cast<const GraphFunction*>(given)->run();
  }
};

// A function of a node of an executable graph, whose parameters were set.
struct ExecFunction {
  GraphFunction its;
  std::list<ExecFunction>* of_node = nullptr;  // with the node's older functions in front of it

  static void CUDA_CB call(void* given) noexcept;
};

// Holds the functions of all graphs, because their handles are valid in the whole process.
struct GraphFunctions {
  using OfNodes = std::map<std::pair<std::uint64_t, std::uint64_t>, std::list<ExecFunction>>;
  std::mutex mutex;
  std::set<GraphFunction> all;
  OfNodes of_nodes;               // by executable graph and node
  std::uint64_t taken_execs = 0;  // that are destroyed, or about to be: see take_exec_functions

  static GraphFunctions& one() {
    static auto* const functions = new GraphFunctions;  // graphs may call until the process ends
    return *functions;
  }
};

void ExecFunction::call(void* given) noexcept {
  auto& self = *static_cast<ExecFunction*>(given);
  {
    GraphFunctions& functions = GraphFunctions::one();
    const std::lock_guard lock(functions.mutex);
    while (self.of_node != nullptr && &self.of_node->front() != &self) self.of_node->pop_front();
  }
  self.its.run();
}

}  // namespace

void run_callback(GatedTenant& tenant, const char* name, CUstream stream, void (*run)(void*),
                  void* data) noexcept {
  // The thread may have that of the plug-in in whose call the driver started it.
  const FloatControl floats = FloatControl::usual();
  const WithFloatControl usual(floats);
  GatedTenant* const outer = std::exchange(thread_state.callback_of, &tenant);
  Called called{run, data};
  const End end = catch_end_of_thread(called);
  thread_state.callback_of = outer;
  char text[256];
  if (!floats.is_set()) {
    floats.restore(text, sizeof text);
    strike(tenant.identity(), nullptr, name, text);
  }
  if (end == End::returned) return;
  add_failed_work(tenant.identity().id, stream);
  if (end == End::threw) {
    std::snprintf(text, sizeof text,
                  "the function threw an exception%s; it was stopped, and the work behind the "
                  "function counts as failed",
                  called.text);
  } else {
    std::snprintf(text, sizeof text,
                  "the function ended its thread, which is the driver's, by pthread_exit; that was "
                  "stopped, and the work behind the function counts as failed");
  }
  strike(tenant.identity(), nullptr, name, text);
}

// The entry is inserted when the driver has taken the function, and erased when it has not. Neither
// allocates.
struct LedGraphFunction::Pending {
  std::set<GraphFunction>::iterator in_graph;
  GraphFunctions::OfNodes of_node;  // one node with one function; empty: it is for a graph
};

LedGraphFunction::LedGraphFunction(GatedTenant& tenant, CUhostFn function, void* data,
                                   ExecNode place) noexcept
    : tenant_(tenant), function_(function), data_(data) {
  tenant.pending_calls().mark_graph();
  if (function == nullptr || function == GraphFunction::call) return;
  GraphFunctions& functions = GraphFunctions::one();
  try {
    auto pending = std::make_unique<Pending>();
    if (place.exec != 0) {
      auto& own = pending->of_node[{place.exec, place.node}];
      data_ = &own.emplace_back(ExecFunction{{&tenant, function, data}});
      function_ = ExecFunction::call;
    } else {
      const std::lock_guard lock(functions.mutex);
      pending->in_graph = functions.all.insert({&tenant, function, data}).first;
      ++pending->in_graph->calls;
      data_ = const_cast<GraphFunction*>(&*pending->in_graph);
      function_ = GraphFunction::call;
    }
    pending_ = pending.release();
  } catch (const std::bad_alloc&) {
    status_ = CUDA_ERROR_OUT_OF_MEMORY;
  }
}

LedGraphFunction::~LedGraphFunction() {
  if (!is_taken_) tenant_.pending_calls().unmark_graph();
  if (pending_ == nullptr) return;
  const std::unique_ptr<Pending> pending(pending_);
  GraphFunctions& functions = GraphFunctions::one();
  const std::lock_guard lock(functions.mutex);
  if (pending->of_node.empty()) {
    if (!is_taken_ && --pending->in_graph->calls == 0) functions.all.erase(pending->in_graph);
  } else if (is_taken_) {
    std::list<ExecFunction>& own = pending->of_node.begin()->second;
    ExecFunction& function = own.front();
    const auto key = pending->of_node.begin()->first;
    const auto known = functions.of_nodes.find(key);
    if (known != functions.of_nodes.end()) {
      known->second.splice(known->second.end(), own);
      function.of_node = &known->second;
    } else {
      const auto added = functions.of_nodes.insert(pending->of_node.extract(key));
      function.of_node = &added.position->second;
    }
  }
}

// After a fault nobody knows whether the driver has it.
CUresult LedGraphFunction::settle(CUresult status) noexcept {
  is_taken_ = status == CUDA_SUCCESS || is_process_fault(status);
  return status;
}

namespace {

// Moves the functions of all nodes, without an allocation.
void move_functions(GraphFunctions::OfNodes& of_nodes, std::uint64_t from,
                    std::uint64_t to) noexcept {
  for (auto one = of_nodes.lower_bound({from, 0});
       one != of_nodes.end() && one->first.first == from; one = of_nodes.lower_bound({from, 0})) {
    auto moved = of_nodes.extract(one);
    moved.key().first = to;
    const auto added = of_nodes.insert(std::move(moved));
    if (added.inserted) continue;
    // The node has got later ones meanwhile.
    std::list<ExecFunction>& later = added.position->second;
    for (ExecFunction& function : added.node.mapped()) function.of_node = &later;
    later.splice(later.begin(), added.node.mapped());
  }
}

}  // namespace

std::uint64_t take_exec_functions(std::uint64_t exec) noexcept {
  GraphFunctions& functions = GraphFunctions::one();
  const std::lock_guard lock(functions.mutex);
  const std::uint64_t taken = ~++functions.taken_execs;  // no handle has such a value
  move_functions(functions.of_nodes, exec, taken);
  return taken;
}

void put_back_exec_functions(std::uint64_t taken, std::uint64_t exec) noexcept {
  GraphFunctions& functions = GraphFunctions::one();
  const std::lock_guard lock(functions.mutex);
  move_functions(functions.of_nodes, taken, exec);
}

void find_graph_function(CUhostFn& function, void*& data) noexcept {
  if (function != GraphFunction::call) return;
  const auto& found = *static_cast<const GraphFunction*>(data);
  function = found.function;
  data = found.data;
}

CUresult refuse_in_callback(const char* function) noexcept {
  thread_state.callback_of->log_once(
      function,
      "refused: CUDA forbids calls of the driver in host functions, stream callbacks and "
      "destructors of user objects; let a thread of the plug-in's own make the call",
      Severity::warning);
  return CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace ctxbroker::detail
