#include "gate/gate_library.hpp"

#include <dlfcn.h>

#include <system_error>

#include "driver/driver_file.hpp"
#include "gate/late_gate.hpp"

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

}  // namespace

GateLibrary find_gate(const std::filesystem::path& file) {
  std::string driver_before;
  // Whoever has the name now is what plug-ins will get.
  if (void* named = dlopen(nvidia_driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
    const ctxb_gate* gate = gate_of(named);
    if (gate == nullptr) driver_before = loaded_path(named, nvidia_driver_name());
    dlclose(named);  // this call's count only
    if (gate != nullptr) return {gate, "in the process before the driver", {}};
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text =
        dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc we run on
    return {nullptr, text != nullptr ? text : "the loader gave no reason", {}};
  }
  const ctxb_gate* gate = gate_of(library);
  if (gate == nullptr) return {nullptr, file.string() + " is of another version", {}};
  return {gate, driver_before.empty() ? "loaded with the broker" : late_gate_reason, driver_before};
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
