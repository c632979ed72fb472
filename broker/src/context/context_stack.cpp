#include "context/context_stack.hpp"

#include <new>

namespace ctxbroker::detail {
namespace {

// A stack deeper than this is a driver that does not pop; stop instead of looping for ever.
constexpr int deepest_stack = 4096;

CUresult drain_all(const DriverTable& driver, std::vector<CUcontext>& taken) {
  for (int depth = 0; depth < deepest_stack; ++depth) {
    CUcontext current = nullptr;
    const CUresult looked = driver.ctx_get_current(&current);
    if (looked == CUDA_SUCCESS && current == nullptr) return CUDA_SUCCESS;
    taken.push_back(nullptr);  // before the pop, so that no context is lost when memory is short
    CUcontext popped = nullptr;
    const CUresult status = driver.ctx_pop(&popped);
    if (status != CUDA_SUCCESS) {
      taken.pop_back();
      // With nothing to look at, "no context" is the pop's way to say that the stack is empty.
      return status == CUDA_ERROR_INVALID_CONTEXT && looked != CUDA_SUCCESS ? CUDA_SUCCESS : status;
    }
    taken.back() = popped;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

CUresult drain(const DriverTable& driver, std::vector<CUcontext>& taken) noexcept {
  try {
    return drain_all(driver, taken);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult put_back(const DriverTable& driver, std::vector<CUcontext>& taken,
                  std::size_t from) noexcept {
  CUresult first = CUDA_SUCCESS;
  while (taken.size() > from) {
    const CUresult status = driver.ctx_push(taken.back());
    if (first == CUDA_SUCCESS) first = status;
    taken.pop_back();
  }
  return first;
}

}  // namespace ctxbroker::detail
