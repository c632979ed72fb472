// SPDX-License-Identifier: Apache-2.0
// cuLibrary* and cuKernel*.
#include <algorithm>
#include <vector>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/library.hpp"
#include "api/load_program.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Library> find_library(CUlibrary handle) {
  return Process::instance().libraries.find(handle);
}

std::shared_ptr<LibraryKernel> find_kernel(CUkernel handle) {
  return Process::instance().kernels.find(handle);
}

// The image is read while it is loaded, so that preserving it is nothing to do.
void check_options(unsigned count, const CUlibraryOption* options) {
  check_value(count == 0 || options != nullptr);
  for (unsigned i = 0; i < count; ++i) {
    check_value(options[i] >= 0 && options[i] < CU_LIBRARY_NUM_OPTIONS);
    check_that(options[i] == CU_LIBRARY_BINARY_IS_PRESERVED, CUDA_ERROR_NOT_SUPPORTED);
  }
}

struct LoadArguments {
  CUjit_option* jit_options;
  void** jit_values;
  unsigned jit_count;
  CUlibraryOption* options;
  unsigned count;
};

// `image` is what load_program takes.
template <typename Image>
void load(CUlibrary* library, const Image& image, const LoadArguments& arguments) {
  check_value(library != nullptr);
  check_options(arguments.count, arguments.options);
  JitOptions options(arguments.jit_count, arguments.jit_options, arguments.jit_values);
  *library = Library::create(load_program(image, options))->handle;
}

}  // namespace

CTXB_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* code,
                                       CUjit_option* jit_options, void** jit_values,
                                       unsigned int jit_count, CUlibraryOption* options, void**,
                                       unsigned int count) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(code != nullptr);
    load(library, code, {jit_options, jit_values, jit_count, options, count});
  });
}

CTXB_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file,
                                           CUjit_option* jit_options, void** jit_values,
                                           unsigned int jit_count, CUlibraryOption* options, void**,
                                           unsigned int count) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(file != nullptr);
    load(library, read_image_file(file), {jit_options, jit_values, jit_count, options, count});
  });
}

CTXB_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  CTXB_COUNT_CALL();
  return working([&] { Process::instance().libraries.take(library)->unload(); });
}

CTXB_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Library> found = find_library(library);
    check_value(kernel != nullptr && name != nullptr && *name != 0);
    const exec::Kernel* wanted = found->program->find_kernel(name);
    check_that(wanted != nullptr, CUDA_ERROR_NOT_FOUND);
    *kernel =
        found->kernels[static_cast<std::size_t>(wanted - found->program->kernels.data())]->handle;
  });
}

CTXB_EXPORT CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Library> found = find_library(library);
    check_value(count != nullptr);
    *count = static_cast<unsigned>(found->kernels.size());
  });
}

CTXB_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count,
                                               CUlibrary library) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Library> found = find_library(library);
    check_value(kernels != nullptr);
    for (std::size_t i = 0; i < count && i < found->kernels.size(); ++i)
      kernels[i] = found->kernels[i]->handle;
  });
}

CTXB_EXPORT CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Library> found = find_library(library);
    check_value(module != nullptr);
    *module = found->module_in(working_owner())->handle;
  });
}

CTXB_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                                        const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Library> found = find_library(library);
    check_value(name != nullptr && (address != nullptr || bytes != nullptr));
    const auto& globals = found->program->globals;
    auto wanted = std::find_if(globals.begin(), globals.end(),
                               [&](const exec::GlobalVariable& one) { return one.name == name; });
    Context& context = working_owner();
    check_that(wanted != globals.end(), CUDA_ERROR_NOT_FOUND);
    auto index = static_cast<std::size_t>(wanted - globals.begin());
    if (address != nullptr) *address = found->module_in(context)->global_addresses[index];
    if (bytes != nullptr) *bytes = wanted->size;
  });
}

// The software device knows neither managed variables nor unified functions: no name is one.
CTXB_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr* address, std::size_t* bytes,
                                         CUlibrary library, const char* name) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_library(library);
    check_value(name != nullptr && (address != nullptr || bytes != nullptr));
    fail(CUDA_ERROR_NOT_FOUND);
  });
}
CTXB_EXPORT CUresult cuLibraryGetUnifiedFunction(void** function, CUlibrary library,
                                                 const char* symbol) {
  CTXB_COUNT_CALL();
  return working([&] {
    find_library(library);
    check_value(function != nullptr && symbol != nullptr);
    fail(CUDA_ERROR_NOT_FOUND);
  });
}

CTXB_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<LibraryKernel> found = find_kernel(kernel);
    check_value(function != nullptr);
    *function = function_in(*found, working_owner())->handle;
  });
}

CTXB_EXPORT CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute,
                                          CUkernel kernel, CUdevice device) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<LibraryKernel> found = find_kernel(kernel);
    check_value(value != nullptr);
    *value = found->on(device).attribute(attribute);
  });
}

CTXB_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                                          CUkernel kernel, CUdevice device) {
  CTXB_COUNT_CALL();
  return working([&] { find_kernel(kernel)->on(device).set_attribute(attribute, value); });
}

CTXB_EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  CTXB_COUNT_CALL();
  return working([&] { find_kernel(kernel)->on(device).set_cache_config(config); });
}

CTXB_EXPORT CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(name != nullptr && kernel != nullptr);
    *name = find_kernel(kernel)->kernel.name.c_str();  // valid as long as the library is loaded
  });
}

CTXB_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                                          std::size_t* bytes) {
  CTXB_COUNT_CALL();
  return working([&] { find_kernel(kernel)->on(0).parameter_info(index, offset, bytes); });
}

#if CUDA_VERSION >= 12050
CTXB_EXPORT CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<LibraryKernel> found = find_kernel(kernel);
    check_value(library != nullptr);
    std::shared_ptr<Library> of = found->library.lock();
    check_that(of != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *library = of->handle;
  });
}
#endif
