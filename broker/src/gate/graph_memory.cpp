#include "gate/graph_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

using PointerAttribute =
    DriverFunction<"cuPointerGetAttribute", CUresult(void*, CUpointer_attribute, CUdeviceptr)>;

using Graph = std::pair<Kind, std::uint64_t>;

// Of the process, as handles are.
struct Names {
  std::mutex mutex;
  std::map<Graph, std::vector<std::uint64_t>> memory;  // addresses

  static Names& one() {
    static auto* const names = new Names;  // threads of plug-ins may free until the process ends
    return *names;
  }
  bool has(std::uint64_t address) const noexcept {
    return std::any_of(memory.begin(), memory.end(), [&](const auto& graph) {
      return std::find(graph.second.begin(), graph.second.end(), address) != graph.second.end();
    });
  }
};

bool is_allocated(std::uint64_t address) noexcept {
  unsigned type = 0;
  return PointerAttribute::call(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS;
}

void forget(GatedTenant& tenant, std::uint64_t address) noexcept {
  const auto held = ledger().remove(Kind::graph_memory, address, tenant.holder());
  if (held) stop_counting(*held);
}

}  // namespace

void name_graph_memory(std::uint64_t graph, std::uint64_t address) {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  names.memory[{Kind::graph, graph}].push_back(address);
}

void pass_on_graph_memory(std::uint64_t graph, std::uint64_t exec) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  const auto found = names.memory.find({Kind::graph, graph});
  if (found == names.memory.end()) return;
  try {
    names.memory[{Kind::graph_exec, exec}] = found->second;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): freed memory may be forgotten
  }                                  // too early, and is the driver's to end
}

void forget_freed(GatedTenant& tenant, std::uint64_t address) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  if (!names.has(address)) forget(tenant, address);
}

bool may_be_allocated(const GatedTenant& tenant, std::uint64_t address) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  bool named = false;
  for (const auto& [graph, memory] : names.memory) {
    if (std::find(memory.begin(), memory.end(), address) == memory.end()) continue;
    if (ledger().holds(tenant.holder(), graph.first, graph.second)) return true;
    named = true;
  }
  return !named;
}

std::vector<std::uint64_t> take_graph_memory(Kind kind, std::uint64_t graph) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  const auto found = names.memory.find({kind, graph});
  if (found == names.memory.end()) return {};
  std::vector<std::uint64_t> addresses = std::move(found->second);
  names.memory.erase(found);
  return addresses;
}

void put_graph_memory_back(Kind kind, std::uint64_t graph,
                           std::vector<std::uint64_t> addresses) noexcept {
  if (addresses.empty()) return;
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  try {
    names.memory[{kind, graph}] = std::move(addresses);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as if it had ended
  }
}

void forget_unallocated(GatedTenant& tenant, const std::vector<std::uint64_t>& addresses) noexcept {
  if (addresses.empty()) return;
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  for (const std::uint64_t address : addresses) {
    if (!names.has(address) && !is_allocated(address)) forget(tenant, address);
  }
}

}  // namespace ctxbroker::detail
