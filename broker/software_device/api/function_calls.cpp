// cuFunc*.
#include <algorithm>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Function> find_function(CUfunction handle) {
  return Process::instance().functions.find(handle);
}

int attribute_of(const Function& function, CUfunction_attribute attribute) {
  const exec::Kernel& kernel = function.kernel;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(std::min(kernel.max_threads, device_limits::max_threads));
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(kernel.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return device_limits::compute;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return function.max_dynamic_shared;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return function.carveout;
    default:
      require_value(attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
      return 0;  // no constants of its own, no cache mode, no clusters
  }
}

}  // namespace

CTXB_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                        CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    require_value(value != nullptr);
    *value = attribute_of(*found, attribute);
  });
}

CTXB_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                        int value) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
      require_value(value >= 0 &&
                    static_cast<unsigned>(value) + found->kernel.static_shared_bytes <=
                        device_limits::shared_per_block_optin);
      found->max_dynamic_shared = value;
    } else {
      require_value(attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
                    value >= -1 && value <= 100);
      found->carveout = value;  // shared memory and cache are not one memory here: only noted
    }
  });
}

CTXB_EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    require_value(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
    found->cache_config = config;
  });
}

CTXB_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_function(function);  // the bank size is fixed
    require_value(config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                  config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
  });
}

CTXB_EXPORT CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    require_value(module != nullptr);
    std::shared_ptr<Module> of = found->module.lock();
    require(of != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *module = of->handle;
  });
}

CTXB_EXPORT CUresult cuFuncGetName(const char** name, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    require_value(name != nullptr);
    *name = found->kernel.name.c_str();  // the module's, and valid as long as it is loaded
  });
}

CTXB_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                                        std::size_t* bytes) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    require_value(offset != nullptr && index < found->kernel.parameters.size());
    *offset = found->kernel.parameters[index].offset;
    if (bytes != nullptr) *bytes = found->kernel.parameters[index].size;
  });
}

CTXB_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_function(function);
    require_value(state != nullptr);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CTXB_EXPORT CUresult cuFuncLoad(CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] { find_function(function); });
}
