#include "gate/kept_primary.hpp"

#include <mutex>
#include <set>

namespace ctxbroker::detail {

CUresult keep_primary(const DriverTable& driver, CUdevice device) noexcept {
  try {
    // Of the process, as the code is that they are kept for; never ended, because that may run
    // last.
    static auto* const mutex = new std::mutex;
    static auto* const kept = new std::set<CUdevice>;
    const std::lock_guard lock(*mutex);
    if (kept->count(device) != 0) return CUDA_SUCCESS;
    CUcontext context = nullptr;
    const CUresult status = driver.primary_retain(&context, device);
    if (status == CUDA_SUCCESS) kept->insert(device);
    return status;
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

}  // namespace ctxbroker::detail
