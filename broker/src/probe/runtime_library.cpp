#include "probe/runtime_library.hpp"

#include "driver/driver_file.hpp"

namespace ctxbroker::detail {
namespace {

template <typename Function>
bool take(Function*& member, void* library, const char* symbol) {
  member = reinterpret_cast<Function*>(find_symbol(library, symbol));
  return member != nullptr;
}

}  // namespace

RuntimeLibrary find_runtime_library(DriverChoice driver) {
  RuntimeLibrary runtime;
  if (driver != DriverChoice::nvidia) {
    runtime.missing = "the runtime library works on NVIDIA's driver alone";
    return runtime;
  }
  for (const char* name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}) {
    const LoadedFile file = load_driver_file(name);
    if (file.handle == nullptr) continue;
    if (take(runtime.device_synchronize, file.handle, "cudaDeviceSynchronize") &&
        take(runtime.allocate, file.handle, "cudaMalloc") &&
        take(runtime.free, file.handle, "cudaFree")) {
      return runtime;
    }
  }
  runtime.missing = "no libcudart was found; its folder may be named in LD_LIBRARY_PATH";
  return runtime;
}

}  // namespace ctxbroker::detail
