// SPDX-License-Identifier: Apache-2.0
// cuFunc*.
#include "api/context.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Function> find_function(CUfunction handle) {
  return Process::instance().functions.find(handle);
}

}  // namespace

CTXB_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                        CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(value != nullptr);
    *value = found->attribute(attribute);
  });
}

CTXB_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                        int value) {
  CTXB_COUNT_CALL();
  return working([&] { find_function(function)->set_attribute(attribute, value); });
}

CTXB_EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  CTXB_COUNT_CALL();
  return working([&] { find_function(function)->set_cache_config(config); });
}

CTXB_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_function(function);  // the bank size is fixed
    check_value(config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
  });
}

CTXB_EXPORT CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(module != nullptr);
    std::shared_ptr<Module> of = found->module.lock();
    check_that(of != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *module = of->handle;
  });
}

CTXB_EXPORT CUresult cuFuncGetName(const char** name, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(name != nullptr);
    *name = found->kernel.name.c_str();  // the module's, and valid as long as it is loaded
  });
}

CTXB_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                                        std::size_t* bytes) {
  CTXB_COUNT_CALL();
  return working([&] { find_function(function)->parameter_info(index, offset, bytes); });
}

CTXB_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_function(function);
    check_value(state != nullptr);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CTXB_EXPORT CUresult cuFuncLoad(CUfunction function) {
  CTXB_COUNT_CALL();
  return working([&] { find_function(function); });
}
