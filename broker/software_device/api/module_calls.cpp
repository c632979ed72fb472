// cuModule*.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "api/entry.hpp"
#include "api/jit.hpp"
#include "api/jit_options.hpp"
#include "api/logs.hpp"

using namespace ctxbroker::software;

namespace {

CUresult load(CUmodule* module, const void* image, JitOptions& options) {
  Context& context = working_owner();
  require_value(module != nullptr && image != nullptr);
  auto begin = std::chrono::steady_clock::now();
  JitResult result = compile_image(image);
  std::chrono::duration<float, std::milli> time = std::chrono::steady_clock::now() - begin;
  options.write_error_log(result.error_log);
  options.write_info_log(options.verbose() ? result.info_log : std::string());
  options.write_wall_time(time.count());
  if (result.status != CUDA_SUCCESS) {
    log_error("module: " + result.error_log);
    return result.status;
  }
  *module = place_module(context, std::move(result.program))->handle;
  return CUDA_SUCCESS;
}

CUresult load_plain(CUmodule* module, const void* image) {
  return initialised([&] {
    JitOptions options(0, nullptr, nullptr);
    return load(module, image, options);
  });
}

// The file's bytes and a 0 after them, as text is expected to end.
std::vector<char> read_file(const char* name) {
  std::error_code error;
  require(std::filesystem::is_regular_file(name, error), CUDA_ERROR_FILE_NOT_FOUND);
  std::ifstream file(name, std::ios::binary);
  require(file.is_open(), CUDA_ERROR_FILE_NOT_FOUND);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  bytes.push_back(0);
  return bytes;
}

std::shared_ptr<Module> find_module(CUmodule handle) {
  return Process::instance().modules.find(handle);
}

}  // namespace

CTXB_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* file) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    require_value(file != nullptr);
    std::vector<char> image = read_file(file);
    JitOptions options(0, nullptr, nullptr);
    return load(module, image.data(), options);
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
    return load(module, image, options);
  });
}

CTXB_EXPORT CUresult cuModuleUnload(CUmodule module) {
  CTXB_COUNT_CALL();
  return working([&] { unload_module(module); });
}

CTXB_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    require_value(function != nullptr && name != nullptr && *name != 0);
    const exec::Kernel* kernel = found->program->find_kernel(name);
    require(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
    *function = found->functions[static_cast<std::size_t>(kernel - found->program->kernels.data())];
  });
}

CTXB_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                                          const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    require_value(name != nullptr && (address != nullptr || bytes != nullptr));
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
    require_value(count != nullptr);
    *count = static_cast<unsigned>(found->functions.size());
  });
}

CTXB_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count,
                                                CUmodule module) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Module> found = find_module(module);
    require_value(functions != nullptr);
    for (std::size_t i = 0; i < count && i < found->functions.size(); ++i)
      functions[i] = found->functions[i];
  });
}

CTXB_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    require_value(mode != nullptr);
    *mode = CU_MODULE_EAGER_LOADING;
  });
}
