// SPDX-License-Identifier: Apache-2.0
#include "gate/callback.hpp"

#include <cxxabi.h>

#include <csetjmp>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "context/failed_work.hpp"
#include "context/float_control.hpp"
#include "context/thread_state.hpp"
#include "gate/rule.hpp"

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

  bool operator<(const GraphFunction& other) const noexcept {
    return std::tie(tenant, function, data) < std::tie(other.tenant, other.function, other.data);
  }
  static void CUDA_CB call(void* given) noexcept {
    const auto& self = *static_cast<const GraphFunction*>(given);
    run_callback(*self.tenant, "cuGraphAddHostNode", nullptr, self.function, self.data);
  }
};

// Holds the functions of all graphs, because their handles are valid in the whole process.
struct GraphFunctions {
  std::mutex mutex;
  std::set<GraphFunction> all;

  static GraphFunctions& one() {
    static auto* const functions = new GraphFunctions;  // graphs may call until the process ends
    return *functions;
  }
};

}  // namespace

void run_callback(GatedTenant& tenant, const char* name, CUstream stream, void (*run)(void*),
                  void* data) noexcept {
  const FloatControl floats{FloatControl::OfThisThread()};
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

CUresult lead_graph_function(GatedTenant& tenant, CUhostFn& function, void*& data) noexcept {
  if (function == nullptr || function == GraphFunction::call) return CUDA_SUCCESS;
  GraphFunctions& functions = GraphFunctions::one();
  const std::lock_guard lock(functions.mutex);
  try {
    data = const_cast<GraphFunction*>(&*functions.all.insert({&tenant, function, data}).first);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  function = GraphFunction::call;
  return CUDA_SUCCESS;
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
