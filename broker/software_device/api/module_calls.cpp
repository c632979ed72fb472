// SPDX-License-Identifier: Apache-2.0
// cuModule*.
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/entry.hpp"
#include "api/load_program.hpp"

using namespace ctxbroker::software;

namespace {

// `image` is what load_program takes.
template <typename Image>
void load(CUmodule* module, const Image& image, JitOptions& options) {
  Context& context = working_context();
  refuse_unsafe();
  check_value(module != nullptr);
  if constexpr (std::is_pointer_v<Image>) check_value(image != nullptr);
  auto program = load_program(image, options);
  const std::lock_guard lock(context.life_of_streams);
  wait_for_kernels(context);
  *module = place_module(context.owner, std::move(program))->handle;
}

CUresult load_plain(CUmodule* module, const void* image) {
  return initialised([&] {
    JitOptions options(0, nullptr, nullptr);
    load(module, image, options);
  });
}

std::shared_ptr<Module> find_module(CUmodule handle) {
  return Process::instance().modules.find(handle);
}

}  // namespace

CTXB_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* file) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    check_value(file != nullptr);
    JitOptions options(0, nullptr, nullptr);
    load(module, read_image_file(file), options);
  });
}

CTXB_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CTXB_COUNT_CALL();
  return load_plain(module, image);
}
CTXB_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  CTXB_COUNT_CALL();
  return load_plain(module, image);
}

CTXB_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                                        CUjit_option* names, void** values) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    JitOptions options(count, names, values);
    load(module, image, options);
  });
}

CTXB_EXPORT CUresult cuModuleUnload(CUmodule module) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_that(!find_module(module)->of_library, CUDA_ERROR_NOT_PERMITTED);
    refuse_unsafe();
    unload_module(module);
  });
}

CTXB_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    check_value(function != nullptr && name != nullptr && *name != 0);
    const exec::Kernel* kernel = found->program->find_kernel(name);
    check_that(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
    *function = found->functions[static_cast<std::size_t>(kernel - found->program->kernels.data())];
  });
}

CTXB_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                                          const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    check_value(name != nullptr && (address != nullptr || bytes != nullptr));
    const auto& globals = found->program->globals;
    for (std::size_t i = 0; i < globals.size(); ++i) {
      if (globals[i].name != name) continue;
      if (address != nullptr) *address = found->global_addresses[i];
      if (bytes != nullptr) *bytes = globals[i].size;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

CTXB_EXPORT CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    check_value(count != nullptr);
    *count = static_cast<unsigned>(found->functions.size());
  });
}

CTXB_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count,
                                                CUmodule module) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    check_value(functions != nullptr);
    for (std::size_t i = 0; i < count && i < found->functions.size(); ++i)
      functions[i] = found->functions[i];
  });
}

CTXB_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(mode != nullptr);
    *mode = CU_MODULE_EAGER_LOADING;
  });
}
