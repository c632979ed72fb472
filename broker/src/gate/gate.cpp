#include "gate/gate.hpp"

#include <array>
#include <cstring>

#include "gate/caller.hpp"
#include "gate/gate_library.hpp"
#include "gate/policy.hpp"
#include "gate/tenant_imports.hpp"
#include "gate/tools.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::array groups{primary_policies,        flag_policies, current_policies,
                            context_policies,        peer_policies, memory_policies,
                            virtual_memory_policies, pool_policies, object_policies,
                            graph_policies,          wait_policies, process_policies};

// One for the process, because it has one library with the driver's name.
GateLibrary& gate_library() {
  static auto* const one = new GateLibrary(find_gate(default_gate_file()));
  return *one;
}

std::uint32_t index_of(const ctxb_gate& gate, const char* symbol) noexcept {
  std::uint32_t index = 0;
  while (index < gate.count && std::strcmp(gate.entries[index].symbol, symbol) != 0) ++index;
  return index;
}

// A newer driver has functions that nobody has classified yet.
void observe_look_up(const char* base, int known) noexcept {
  if (known != 0 || *base == '\0') return;
  if (GatedTenant* tenant = calling().tenant) {
    tenant->log_once(base, "looked up, and unknown to this version of the gate: it is not guarded");
  }
}

// `wanted` is the driver's file; null: NVIDIA's, where the system has it.
LoadedFile load_behind(const ctxb_gate& gate, const char* wanted) {
  char error[512] = {};
  LoadedFile file;
  file.handle = gate.open_driver(wanted, error, sizeof error);
  file.path = file.handle != nullptr ? gate.driver_path() : "";
  file.error = error;
  return file;
}

void install(const ctxb_gate& gate, bool late) {
  learn_of_threads();
  std::size_t place = 0;
  for (const auto group : groups) {
    for (const PolicyRow& row : group()) {
      const std::uint32_t index = index_of(gate, row.symbol);
      row.bind(gate.driver_function(index), place++);
    }
  }
  // No policy may run before all that it calls is bound.
  for (const auto group : groups) {
    for (const PolicyRow& row : group()) {
      if (row.policy != nullptr) gate.install(index_of(gate, row.symbol), row.policy());
    }
  }
  gate.observe_look_ups(observe_look_up);
  start_leading_imports(gate, late);
}

}  // namespace

std::size_t policy_count() noexcept {
  std::size_t count = 0;
  for (const auto group : groups) count += group().size();
  return count;
}

const PolicyRow& policy_at(std::size_t index) noexcept {
  for (const auto group : groups) {
    const auto rows = group();
    if (index < rows.size()) return rows[index];
    index -= rows.size();
  }
  return groups[0]()[0];
}

LoadedFile load_driver_behind_gate(const std::filesystem::path& name) {
  const GateLibrary& library = gate_library();
  const ctxb_gate* gate = library.gate;
  if (gate == nullptr) return load_driver_file(name);
  const bool nvidia = name == nvidia_driver_name();
  const char* wanted = nvidia ? nullptr : name.c_str();
  // The driver that everybody else in the process has, wherever it was found.
  if (nvidia && !library.driver_before.empty()) wanted = library.driver_before.c_str();
  LoadedFile file = load_behind(*gate, wanted);
  if (file.handle != nullptr || gate->driver_path() == nullptr) return file;
  // A library in front of the gate that bears NVIDIA's name may be a profiler's. The driver that
  // the program has worked with stands behind the gate.
  return nvidia ? load_behind(*gate, nullptr) : load_driver_file(name);
}

LoadedFile load_driver_past_gate(const std::filesystem::path& name) {
  const ctxb_gate* gate = name == nvidia_driver_name() ? gate_by_name() : nullptr;
  return gate != nullptr ? load_behind(*gate, nullptr) : load_driver_file(name);
}

namespace {

std::string stood_before(const std::string& library) {
  const std::string_view tool = tool_of_library(library);
  if (tool.empty()) {
    return "plug-ins that ask for the driver get another one, which was loaded before the broker "
           "was opened: " +
           library;
  }
  std::string text = "it stands aside for ";
  text.append(tool).append(", whose library answers to the driver's name: ").append(library);
  text.append("; plug-ins are held again when the program runs without it");
  return text;
}

}  // namespace

GateState enforce_gate(const std::string& driver_path) {
  const GateLibrary& library = gate_library();
  if (library.gate == nullptr) return {GateMode::none, library.reason};
  const char* behind = library.gate->driver_path();
  if (behind == nullptr || driver_path != behind) {
    return {GateMode::none, std::string("it stands before another driver: ") +
                                (behind != nullptr ? behind : "none")};
  }
  const bool late = !library.driver_before.empty();
  if (late && !is_loaded_as(library.driver_before, driver_path)) {
    return {GateMode::none, stood_before(library.driver_before)};
  }
  static const char owner = 0;
  if (library.gate->claim(&owner) == 0) {
    return {GateMode::none,
            "another copy of ctxbroker in this process has it; this one works under it"};
  }
  static const bool installed = (install(*library.gate, late), true);
  static_cast<void>(installed);
  return {late ? GateMode::late : GateMode::before_driver, library.reason};
}

}  // namespace ctxbroker::detail

namespace ctxbroker {

const char* to_string(GateMode mode) noexcept {
  switch (mode) {
    case GateMode::none:
      return "none";
    case GateMode::before_driver:
      return "before_driver";
    case GateMode::late:
      return "late";
  }
  return "unknown";
}

}  // namespace ctxbroker
