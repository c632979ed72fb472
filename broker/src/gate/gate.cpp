// SPDX-License-Identifier: Apache-2.0
#include "gate/gate.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "gate/caller.hpp"
#include "gate/held.hpp"
#include "gate/library/gate.h"
#include "gate/loaded_objects.hpp"
#include "gate/rule.hpp"
#include "gate/tenant_imports.hpp"
#include "gate/tools.hpp"
#include "observe/enum_names.hpp"
#include "process/environment.hpp"
#include "process/own_files.hpp"

namespace ctxbroker::detail {
namespace {

struct GateLibrary {
  const ctxb_gate* gate = nullptr;
  std::string reason;  // why there is none; or how it came: "linked by the host"
  // The file that had the driver's name before the gate came, which is late then. Empty: the gate
  // has the name.
  std::string driver_before;
};

const ctxb_gate* gate_of(void* library) {
  using Get = const ctxb_gate* (*)();
  const auto get = reinterpret_cast<Get>(find_symbol(library, "ctxb_gate_get"));
  const ctxb_gate* gate = get != nullptr ? get() : nullptr;
  const bool fits =
      gate != nullptr && gate->abi == ctxb_gate_abi && gate->size >= sizeof(ctxb_gate);
  return fits ? gate : nullptr;
}

// Says who brought a library into the process, as far as that can be told afterwards.
std::string bringer_of(std::string_view name) {
  const std::string preloaded = kept_variable("LD_PRELOAD").value_or("");
  if (preloaded.find(name) != std::string::npos) return "LD_PRELOAD names it";
  for (const LoadedObject& one : loaded_objects()) {
    if (std::find(one.needed.begin(), one.needed.end(), name) == one.needed.end()) continue;
    return one.path.empty() ? "the program links it" : one.path + " needs it";
  }
  return "something in the process has opened it";
}

// Returns the reason that GateInfo gives for a gate that was loaded after the driver.
std::string late_gate_reason(const std::string& driver) {
  return "the driver, " + driver +
         ", was loaded before the broker was opened: " + bringer_of(nvidia_driver_name()) +
         ". The gate holds the calls that plug-ins make through imports of their own libraries, "
         "once these are loaded, and through functions that these libraries look up later. It does "
         "not hold calls of their constructors, functions that constructors or other libraries "
         "looked up for them, and calls through libraries that the host uses too or had before. "
         "Link the program with ctxbroker::broker, or open the broker first";
}

const ctxb_gate* gate_loaded_as(const char* name) noexcept {
  void* const named = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (named == nullptr) return nullptr;
  const ctxb_gate* const gate = gate_of(named);
  dlclose(named);  // this call's count only
  return gate;
}

// The gate that the program links, if it came before `named`. The loader gives the first library
// with the driver's name to whoever asks, but a profiler in front of dlopen may answer with another
// one.
const ctxb_gate* gate_of_program(void* named) noexcept {
  if (dlsym(RTLD_DEFAULT, "ctxb_gate_get") == nullptr) return nullptr;
  try {
    const std::string path = loaded_path(named, nvidia_driver_name());
    for (const LoadedObject& one : loaded_objects()) {
      if (one.path == path) return nullptr;
      if (one.name == nvidia_driver_name()) return gate_loaded_as(one.path.c_str());
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): not known, then
  }
  return nullptr;
}

// The gate that has the driver's name in this process already, because the program links it or a
// broker loaded it. Null: none has.
const ctxb_gate* gate_by_name() noexcept {
  void* const named = dlopen(nvidia_driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (named == nullptr) return nullptr;
  const ctxb_gate* gate = gate_of(named);
  if (gate == nullptr) gate = gate_of_program(named);
  dlclose(named);  // this call's count only
  return gate;
}

// Finds the gate, or loads it from `file`. It is loaded also where another library has the driver's
// name already; who asks for that name goes on getting the other library.
GateLibrary find_gate(const std::filesystem::path& file) {
  // Whoever has the name now is what plug-ins will get.
  if (const ctxb_gate* gate = gate_by_name()) return {gate, "in the process before the driver", {}};
  std::string driver_before;
  if (void* named = dlopen(nvidia_driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
    driver_before = loaded_path(named, nvidia_driver_name());
    dlclose(named);  // this call's count only
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text =
        dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc we run on
    return {nullptr, text != nullptr ? text : "the loader gave no reason", {}};
  }
  const ctxb_gate* gate = gate_of(library);
  if (gate == nullptr) return {nullptr, file.string() + " is of another version", {}};
  if (driver_before.empty()) return {gate, "loaded with the broker", {}};
  return {gate, late_gate_reason(driver_before), driver_before};
}

// Returns whether two paths lead to one library that is in the process.
bool is_loaded_as(const std::string& path, const std::string& other) {
  void* const libraries[] = {dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD),
                             dlopen(other.c_str(), RTLD_NOW | RTLD_NOLOAD)};
  for (void* library : libraries) {
    if (library != nullptr) dlclose(library);  // these calls' counts only
  }
  return libraries[0] != nullptr && libraries[0] == libraries[1];
}

constexpr std::array groups{&primary_rules, &context_rules,        &handle_rules,  &pointer_rules,
                            &peer_rules,    &virtual_memory_rules, &pool_rules,    &object_rules,
                            &graph_rules,   &graph_change_rules,   &capture_rules, &callback_rules,
                            &use_rules,     &interop_rules,        &wait_rules,    &process_rules};

// One for the process, because it has one library with the driver's name. Null: nobody has looked.
std::atomic<const GateLibrary*> looked_for{nullptr};

// Two threads may look at once. A lock would be held while one of them waits for the loader.
const GateLibrary& gate_library() {
  if (const GateLibrary* known = looked_for.load(std::memory_order_acquire)) return *known;
  auto mine = std::make_unique<const GateLibrary>(
      find_gate(beside_this_library("ctxbroker/ctxbroker_gate.so")));
  const GateLibrary* first = nullptr;
  if (!looked_for.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel)) {
    return *first;
  }
  return *mine.release();
}

std::uint32_t index_of(const ctxb_gate& gate, const char* symbol) noexcept {
  std::uint32_t index = 0;
  while (index < gate.count && std::strcmp(gate.entries[index].symbol, symbol) != 0) ++index;
  return index;
}

// Look-ups that were answered with a function of the driver that the gate does not know.
struct PassedOn {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> look_ups;  // by name
};
PassedOn& passed_on() {
  static auto* const one = new PassedOn;  // threads of plug-ins may ask until the process ends
  return *one;
}

void count_passed_on(const char* name) {
  PassedOn& all = passed_on();
  const std::lock_guard lock(all.mutex);
  ++all.look_ups[name];
}

std::string version_text(int cuda) {
  return "CUDA " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

void observe_look_up(const char* name, ctxb_gate_found found) noexcept {
  try {
    count_passed_on(name);
    thread_state.called_from = nullptr;  // that was an earlier call
    GatedTenant* const tenant = calling().tenant;
    if (tenant == nullptr || !tenant->is_open()) return;
    // Once for each name. Its rule may have records of its own.
    const std::string key = std::string("look-up of ") + name;
    if (tenant->identity().repeats.count(key, {}) != 1) return;
    const GateLibrary& library = *looked_for.load(std::memory_order_acquire);
    std::string text = "looked up, and unknown to this gate";
    if (found == ctxb_gate_found_newer) text = "looked up in a form that is unknown to this gate";
    text += ", which knows the functions of " + version_text(library.gate->cuda_version) +
            ": the driver's own was handed out, and its calls are not guarded";
    tenant->log(Severity::info, name, text.c_str());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the look-up is not recorded
  }
}

// 0: unknown.
int version_of_driver(const ctxb_gate& gate) noexcept {
  const auto ask = reinterpret_cast<CUresult (*)(int*)>(
      gate.driver_function(index_of(gate, "cuDriverGetVersion")));
  int version = 0;
  return ask != nullptr && ask(&version) == CUDA_SUCCESS ? version : 0;
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
  observe_covered_memory([](const void* pages, std::uint64_t bytes, bool fresh) noexcept {
    tell_of_registration(pages, bytes, fresh, nullptr);
  });
  std::size_t place = 0;
  for (const auto* group : groups) {
    for (const RuleRow& row : *group) {
      const std::uint32_t index = index_of(gate, row.symbol);
      row.bind(gate.driver_function(index), place++);
    }
  }
  // No rule may run before all that it calls is bound.
  for (const auto* group : groups) {
    for (const RuleRow& row : *group) {
      if (row.rule != nullptr) gate.install(index_of(gate, row.symbol), row.rule());
    }
  }
  gate.observe_look_ups(observe_look_up);
  start_leading_imports(gate, late);
}

}  // namespace

std::size_t rule_count() noexcept {
  std::size_t count = 0;
  for (const auto* group : groups) count += group->size();
  return count;
}

const RuleRow& rule_at(std::size_t index) noexcept {
  for (const auto* group : groups) {
    if (index < group->size()) return (*group)[index];
    index -= group->size();
  }
  return primary_rules[0];
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
  // Two threads may do it at once, with the same result. It asks the loader.
  static std::atomic<bool> installed{false};
  if (!installed.load(std::memory_order_acquire)) {
    install(*library.gate, late);
    installed.store(true, std::memory_order_release);
  }
  return {late ? GateMode::late : GateMode::before_driver, library.reason};
}

int cuda_version_of_gate() noexcept {
  const GateLibrary* const library = looked_for.load(std::memory_order_acquire);
  return library != nullptr && library->gate != nullptr ? library->gate->cuda_version : 0;
}

std::vector<UnknownFunction> unknown_functions() {
  const GateLibrary* const library = looked_for.load(std::memory_order_acquire);
  if (library == nullptr || library->gate == nullptr) return {};
  std::vector<std::string> exported;
  library->gate->for_each_unknown(
      [](const char* symbol, void* all) {
        static_cast<std::vector<std::string>*>(all)->emplace_back(symbol);
      },
      &exported);
  std::map<std::string, std::uint64_t> all;
  {
    PassedOn& passed = passed_on();
    const std::lock_guard lock(passed.mutex);
    all = passed.look_ups;
  }
  for (std::string& name : exported) all.try_emplace(std::move(name), 0);
  std::vector<UnknownFunction> functions;
  functions.reserve(all.size());
  for (const auto& [name, look_ups] : all) functions.push_back({name, look_ups});
  return functions;
}

std::string why_symbol_is_missing(const std::string& symbol) {
  const GateLibrary* const library = looked_for.load(std::memory_order_acquire);
  if (library == nullptr || library->gate == nullptr) return {};
  const ctxb_gate& gate = *library->gate;
  if (gate.driver_path() == nullptr) return {};
  const std::string driver = "the driver (" + version_text(version_of_driver(gate)) + ")";
  const std::uint32_t index = index_of(gate, symbol.c_str());
  if (index != gate.count) {
    if (gate.driver_function(index) != nullptr) return {};
    return driver + " is too old for this library: " + symbol + " came with " +
           version_text(gate.entries[index].version);
  }
  const std::vector<UnknownFunction> unknown = unknown_functions();
  const bool is_of_driver = std::any_of(unknown.begin(), unknown.end(),
                                        [&](const auto& one) { return one.name == symbol; });
  if (!is_of_driver) return {};
  return driver + " has " + symbol +
         ", but is newer than this gate, which knows the functions of " +
         version_text(gate.cuda_version) +
         ": use a newer ctxbroker, or have the library look the function up (cuGetProcAddress, "
         "dlsym), because only look-ups can be passed on to the driver";
}

}  // namespace ctxbroker::detail

namespace ctxbroker {

const char* to_string(GateMode mode) noexcept {
  constexpr std::array names{"none", "before_driver", "late"};
  return detail::name_of(names, mode);
}

}  // namespace ctxbroker
