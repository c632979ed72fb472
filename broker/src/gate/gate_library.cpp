#include "gate/gate_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>

#include "driver/driver_file.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {
namespace {

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
  // Nobody writes to the environment while a broker is opened: [main] thread only.
  const char* preloaded = std::getenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe)
  if (preloaded != nullptr && std::string_view(preloaded).find(name) != std::string_view::npos) {
    return "LD_PRELOAD names it";
  }
  for (const LoadedObject& one : loaded_objects()) {
    if (std::find(one.needed.begin(), one.needed.end(), name) == one.needed.end()) continue;
    return one.path.empty() ? "the program links it" : one.path + " needs it";
  }
  return "something in the process has opened it";
}

// What GateInfo says of a gate that the driver came before.
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

}  // namespace

const ctxb_gate* gate_by_name() noexcept {
  void* const named = dlopen(nvidia_driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (named == nullptr) return nullptr;
  const ctxb_gate* gate = gate_of(named);
  if (gate == nullptr) gate = gate_of_program(named);
  dlclose(named);  // this call's count only
  return gate;
}

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

bool is_loaded_as(const std::string& path, const std::string& other) {
  void* const libraries[] = {dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD),
                             dlopen(other.c_str(), RTLD_NOW | RTLD_NOLOAD)};
  for (void* library : libraries) {
    if (library != nullptr) dlclose(library);  // these calls' counts only
  }
  return libraries[0] != nullptr && libraries[0] == libraries[1];
}

std::filesystem::path default_gate_file() {
  return beside_this_library("ctxbroker/ctxbroker_gate.so");
}

}  // namespace ctxbroker::detail
