// SPDX-License-Identifier: Apache-2.0
#include "gate/tools.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "driver/driver_file.hpp"
#include "gate/loaded_objects.hpp"
#include "process/environment.hpp"

namespace ctxbroker::detail {
namespace {

// A tool is known by how the names of its libraries begin.
struct Known {
  std::string_view file, tool;
};
constexpr Known known[] = {
    {"libcuda-injection", "Nsight Compute"},
    {"libsanitizer-collection", "Compute Sanitizer"},
    {"libsanitizer-public", "Compute Sanitizer's library"},
    {"libToolsInjection", "Nsight Systems"},
    {"libcupti", "CUPTI"},
    {"libcudadebugger", "cuda-gdb's library"},
};

// A library that exports one of these stands between plug-ins and the driver, or the loader.
constexpr const char* interposed[] = {
    "dlsym", "dlopen", "cuGetProcAddress", "cuInit", "cuGetProcAddress_v2", "cuMemAlloc_v2"};

constexpr const char* own_calls = "what it calls itself is the host's";
constexpr const char* as_usual = "plug-ins are held as usual";

std::string_view file_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

const Known* known_tool(std::string_view path) noexcept {
  const auto* const found = std::find_if(std::begin(known), std::end(known), [&](const Known& one) {
    return file_name(path).starts_with(one.file);
  });
  return found != std::end(known) ? found : nullptr;
}

std::vector<std::string> preloaded() {
  const std::string list = kept_variable("LD_PRELOAD").value_or("");
  std::vector<std::string> all;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find_first_of(" :", at), list.size());
    if (end != at) all.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

// The functions that a preloaded library stands in front of; empty: none of these, or the library
// is the gate.
std::string interposes(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "";
  std::string names;
  const bool is_gate = find_symbol(library, "ctxb_gate_get") != nullptr;
  for (const char* name : interposed) {
    if (is_gate) break;
    if (find_symbol(library, name) == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  dlclose(library);  // this call's count only
  return names;
}

void add_preloaded(std::vector<std::string>& tools) {
  for (const std::string& file : preloaded()) {
    // This is the driver itself. GateInfo::reason says that the gate is late then, and why.
    if (file_name(file).starts_with("libcuda.so")) continue;
    const std::string names = interposes(file);
    if (names.empty()) continue;
    std::string text = file;
    text.append(" (LD_PRELOAD) stands in front of ").append(names);
    text.append(
        ": calls of plug-ins reach the gate through it where it passes them on to "
        "libcuda.so.1, calls of the broker go past it");
    tools.push_back(std::move(text));
  }
}

void add_injected(std::vector<std::string>& tools) {
  const std::string file = kept_variable("CUDA_INJECTION64_PATH").value_or("");
  if (file.empty()) return;
  tools.push_back(file + " (CUDA_INJECTION64_PATH) is loaded by the driver: " + own_calls);
}

void add_known(std::vector<std::string>& tools) {
  for (const LoadedObject& one : loaded_objects()) {
    const Known* tool = known_tool(one.path);
    if (tool == nullptr) continue;
    std::string text(tool->tool);
    text.append(" (").append(one.path).append(") is in the process: ").append(own_calls);
    tools.push_back(std::move(text));
  }
}

void add_debugger(std::vector<std::string>& tools) {
  std::ifstream status("/proc/self/status");
  std::string word, process;
  while (status >> word) {
    if (word == "TracerPid:") status >> process;
  }
  if (process.empty() || process == "0") return;
  std::ifstream file("/proc/" + process + "/comm");
  std::string name;
  std::getline(file, name);
  tools.push_back("a debugger is attached (" + (name.empty() ? "process " + process : name) + ")");
}

}  // namespace

std::vector<std::string> tools_in_process(bool gate_is_in_force) {
  std::vector<std::string> tools;
  add_injected(tools);
  add_known(tools);
  add_debugger(tools);
  if (gate_is_in_force) {
    for (std::string& tool : tools) tool.append("; ").append(as_usual);
  }
  add_preloaded(tools);  // each says itself what follows
  return tools;
}

std::string_view tool_of_library(std::string_view path) noexcept {
  const Known* const tool = known_tool(path);
  return tool != nullptr ? tool->tool : std::string_view();
}

}  // namespace ctxbroker::detail
