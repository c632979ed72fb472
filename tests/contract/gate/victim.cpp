// SPDX-License-Identifier: Apache-2.0
#include "victim.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "support/driver_by_name.hpp"

namespace ctxbroker {
namespace {

constexpr char image[] = R"(.version 7.0
.target sm_50
.address_size 64
.visible .entry store(.param .u64 place, .param .u32 value) {
  .reg .b64 %p;
  .reg .b32 %v;
  ld.param.u64 %p, [place];
  ld.param.u32 %v, [value];
  cvta.to.global.u64 %p, %p;
  st.global.u32 [%p], %v;
  ret;
}
)";
constexpr std::uint32_t own_value = 7, others_value = 13;

void need(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string("the victim cannot have ") + what + ": " +
                           std::to_string(status));
}

void CUDA_CB note_end(void* ended) {
  static_cast<std::atomic<bool>*>(ended)->store(true);
}

// Long enough for work that nothing holds up.
template <typename Ready>
bool soon(Ready&& ready) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

Victim::Victim(bool captures) : captures_(captures) {
  context_ = current();
  need(driver_call("cuStreamCreate", &stream_, 1U), "a stream");
  need(driver_call("cuEventCreate", &event_, 0U), "an event");
  need(driver_call("cuEventRecord", event_, stream_), "its record");
  if (captures) {
    need(driver_call("cuStreamCreate", &capturing_, 1U), "another stream");
    need(driver_call("cuEventCreate", &captured_event_, 0U), "another event");
    need(driver_call("cuStreamBeginCapture_v2", capturing_, CU_STREAM_CAPTURE_MODE_RELAXED),
         "a capture");
    need(driver_call("cuEventRecord", captured_event_, capturing_), "a record in it");
    return;
  }
  need(driver_call("cuMemAllocManaged", &memory_, std::size_t{64}, 1U), "memory");
  need(driver_call("cuModuleLoadData", &module_, static_cast<const void*>(image)), "a module");
  need(driver_call("cuModuleGetFunction", &function_, module_, "store"), "a function");
  need(driver_call("cuLibraryLoadData", &library_, static_cast<const void*>(image),
                   static_cast<CUjit_option*>(nullptr), static_cast<void**>(nullptr), 0U,
                   static_cast<CUlibraryOption*>(nullptr), static_cast<void**>(nullptr), 0U),
       "a library");
  need(driver_call("cuLibraryGetKernel", &kernel_, library_, "store"), "a kernel");
  describe(own_, own_value);
  describe(others_, others_value);
  graph_ = make_graph(own_, &node_, &after_);
  need(driver_call("cuGraphInstantiateWithFlags", &exec_, graph_, 0ULL), "an executable graph");
  need(driver_call("cuUserObjectCreate", &object_, static_cast<void*>(&object_ended_), &note_end,
                   1U, unsigned(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)),
       "a user object");
  need(driver_call("cuLinkCreate_v2", 0U, static_cast<CUjit_option*>(nullptr),
                   static_cast<void**>(nullptr), &link_),
       "a linker");
}

void Victim::describe(Stored& stored, std::uint32_t value) {
  stored.address = memory_;
  stored.value = value;
  stored.parameters = {&stored.address, &stored.value};
  stored.node.func = function_;
  stored.node.gridDimX = stored.node.gridDimY = stored.node.gridDimZ = 1;
  stored.node.blockDimX = stored.node.blockDimY = stored.node.blockDimZ = 1;
  stored.node.kernelParams = stored.parameters.data();
}

CUgraph Victim::make_graph(Stored& stored, CUgraphNode* node, CUgraphNode* after) const {
  CUgraph graph = nullptr;
  const CUgraphNode* const none = nullptr;
  need(driver_call("cuGraphCreate", &graph, 0U), "a graph");
  need(driver_call("cuGraphAddKernelNode_v2", node, graph, none, std::size_t{0},
                   static_cast<const CUDA_KERNEL_NODE_PARAMS*>(&stored.node)),
       "a node");
  need(driver_call("cuGraphAddEmptyNode", after, graph, static_cast<const CUgraphNode*>(node),
                   std::size_t{1}),
       "a node after it");
  return graph;
}

CUgraph Victim::make_replacement() {
  CUgraphNode node = nullptr, after = nullptr;
  return captures_ ? nullptr : make_graph(others_, &node, &after);
}

ForeignTarget Victim::target() noexcept {
  ForeignTarget target{};
  target.context = context_;
  target.stream = stream_;
  target.event = event_;
  target.capturing = capturing_;
  target.captured_event = captured_event_;
  target.graph = graph_;
  target.node = node_;
  target.after = after_;
  target.exec = exec_;
  target.user_object = object_;
  target.link = link_;
  target.function = function_;
  target.kernel = kernel_;
  target.memory = memory_;
  target.kernel_node = &others_.node;
  return target;
}

bool Victim::is_ready() const {
  return soon([&] { return driver_call("cuStreamQuery", stream_) == CUDA_SUCCESS; });
}

// 0: it could not be run.
std::uint32_t Victim::result_of(CUgraphExec exec) const {
  std::uint32_t result = 0;
  auto* const place = reinterpret_cast<std::uint32_t*>(memory_);
  *place = 0;
  if (driver_call("cuGraphLaunch", exec, stream_) == CUDA_SUCCESS && is_ready()) result = *place;
  return result;
}

bool Victim::object_ends_soon() const {
  return soon([&] { return object_ended_.load(); });
}

std::vector<std::string> Victim::damage() {
  std::vector<std::string> found;
  const auto check = [&](bool well, const char* what) {
    if (!well) found.emplace_back(what);
  };
  if (captures_) {
    CUgraph graph = nullptr;
    check(driver_call("cuStreamEndCapture", capturing_, &graph) == CUDA_SUCCESS,
          "its capture was spoilt");
    if (graph != nullptr) driver_call("cuGraphDestroy", graph);
    return found;
  }
  check(driver_call("cuMemsetD8Async", memory_ + 32, static_cast<unsigned char>(1), std::size_t{4},
                    stream_) == CUDA_SUCCESS,
        "its stream takes no work");
  const bool runs = is_ready();
  check(runs, "its stream does not go on");
  check(soon([&] { return driver_call("cuEventQuery", event_) == CUDA_SUCCESS; }),
        "its event does not come");
  std::size_t nodes = 0, edges = 0;
  check(driver_call("cuGraphGetNodes", graph_, static_cast<CUgraphNode*>(nullptr), &nodes) ==
                CUDA_SUCCESS &&
            nodes == 2,
        "its graph has other nodes");
  check(driver_call("cuGraphGetEdges", graph_, static_cast<CUgraphNode*>(nullptr),
                    static_cast<CUgraphNode*>(nullptr), &edges) == CUDA_SUCCESS &&
            edges == 1,
        "its graph has other edges");
  check(!runs || result_of(exec_) == own_value, "its executable graph does something else");
  CUgraphExec again = nullptr;
  driver_call("cuGraphInstantiateWithFlags", &again, graph_, 0ULL);
  check(!runs || result_of(again) == own_value, "its graph does something else");
  driver_call("cuGraphExecDestroy", again);
  int shared = -1;
  driver_call("cuFuncGetAttribute", &shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              function_);
  check(shared != 512, "its function was changed");
  driver_call("cuKernelGetAttribute", &shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              kernel_, 0);
  check(shared != 512, "its kernel was changed");
  check(!object_ended_.load(), "its user object is gone");
  void* cubin = nullptr;
  std::size_t bytes = 0;
  const bool links = driver_call("cuLinkAddData_v2", link_, CU_JIT_INPUT_PTX,
                                 const_cast<void*>(static_cast<const void*>(image)), sizeof image,
                                 "image", 0U, static_cast<CUjit_option*>(nullptr),
                                 static_cast<void**>(nullptr)) == CUDA_SUCCESS &&
                     driver_call("cuLinkComplete", link_, &cubin, &bytes) == CUDA_SUCCESS;
  check(links, "its linker is gone");
  return found;
}

void Victim::end() {
  CUgraph graph = nullptr;
  driver_call("cuStreamEndCapture", stream_, &graph);
  driver_call("cuStreamSynchronize", stream_);
  driver_call("cuEventDestroy_v2", event_);
  driver_call("cuStreamDestroy_v2", stream_);
  if (captures_) {
    driver_call("cuEventDestroy_v2", captured_event_);
    driver_call("cuStreamDestroy_v2", capturing_);
    return;
  }
  driver_call("cuGraphExecDestroy", exec_);
  driver_call("cuGraphDestroy", graph_);
  driver_call("cuUserObjectRelease", object_, 1U);
  soon([&] { return object_ended_.load(); });  // by a driver thread
  driver_call("cuLinkDestroy", link_);
  driver_call("cuModuleUnload", module_);
  driver_call("cuLibraryUnload", library_);
  driver_call("cuMemFree_v2", memory_);
}

}  // namespace ctxbroker
