#include "plugin/kernel_access.hpp"

namespace ctxbroker::detail {

ctxb_status status_for(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kernel_image:
      return CTXB_ERROR_NO_KERNEL_IMAGE;
    case ErrorKind::out_of_memory:
      return CTXB_ERROR_OUT_OF_DEVICE_MEMORY;
    case ErrorKind::context_lost:
      return CTXB_ERROR_CONTEXT_LOST;
    default:
      return CTXB_ERROR_DRIVER;
  }
}

ctxb_status bring_kernel(Instance& instance, Activation& activation, Kernel& kernel,
                         const char* function) {
  return with_modules(instance, function, [&] {
    const CUresult status = activation.modules->find_function(kernel);
    if (status != CUDA_ERROR_NOT_FOUND) return answer(instance, function, status);
    return refuse(instance, CTXB_ERROR_NO_KERNEL_IMAGE,
                  std::string(function) + ": module \"" + kernel.module + "\" has no kernel \"" +
                      kernel.name + "\"; was it declared extern \"C\"?",
                  status);
  });
}

}  // namespace ctxbroker::detail
