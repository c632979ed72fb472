#include "gate/gate_library.hpp"

#include <dlfcn.h>

#include <system_error>

#include "driver/driver_file.hpp"

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
  // Whoever has the name now is what plug-ins will get.
  if (void* named = dlopen(nvidia_driver_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
    const ctxb_gate* gate = gate_of(named);
    dlclose(named);  // this call's count only
    if (gate != nullptr) return {gate, "in the process before the driver"};
    return {nullptr,
            "the driver was loaded before the broker was opened; link ctxbroker::broker before "
            "the driver, or open the broker first"};
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text =
        dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc we run on
    return {nullptr, text != nullptr ? text : "the loader gave no reason"};
  }
  const ctxb_gate* gate = gate_of(library);
  return gate != nullptr ? GateLibrary{gate, "loaded with the broker"}
                         : GateLibrary{nullptr, file.string() + " is of another version"};
}

std::filesystem::path default_gate_file() {
  return beside_this_library("ctxbroker/ctxbroker_gate.so");
}

}  // namespace ctxbroker::detail
