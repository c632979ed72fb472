#include "context/context_stack.hpp"

namespace ctxbroker::detail {
namespace {

// A stack deeper than this is a driver that does not pop; stop instead of looping for ever.
constexpr int deepest_stack = 4096;

// Nothing else can take the context off the thread, where it would stay for whatever runs next: a
// pop that fails is tried again.
CUresult pop(const DriverTable& driver, CUcontext* popped) noexcept {
  const CUresult status = driver.ctx_pop(popped);
  const bool empty = status == CUDA_ERROR_INVALID_CONTEXT;
  return status == CUDA_SUCCESS || empty ? status : driver.ctx_pop(popped);
}

// The same for what the thread is owed.
CUresult push(const DriverTable& driver, CUcontext context) noexcept {
  const CUresult status = driver.ctx_push(context);
  return status == CUDA_SUCCESS ? status : driver.ctx_push(context);
}

// Pops until the stack is empty; `keep(context)` says whether to go on.
template <typename Keep>
CUresult pop_all(const DriverTable& driver, Keep&& keep) noexcept {
  for (int depth = 0; depth < deepest_stack; ++depth) {
    CUcontext current = nullptr;
    const CUresult looked = driver.ctx_get_current(&current);
    if (looked == CUDA_SUCCESS && current == nullptr) return CUDA_SUCCESS;
    CUcontext popped = nullptr;
    const CUresult status = pop(driver, &popped);
    if (status != CUDA_SUCCESS) {
      // With nothing to look at, "no context" is the pop's way to say that the stack is empty.
      return status == CUDA_ERROR_INVALID_CONTEXT && looked != CUDA_SUCCESS ? CUDA_SUCCESS : status;
    }
    if (!keep(popped)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

CUresult take_stack(const DriverTable& driver, TakenContexts& taken) noexcept {
  return pop_all(driver, [&](CUcontext context) {
    if (taken.count == TakenContexts::most) {
      push(driver, context);  // there is no room to owe it
      return false;
    }
    taken.contexts[taken.count++] = context;
    return true;
  });
}

CUresult give_back_stack(const DriverTable& driver, TakenContexts& taken,
                         std::size_t from) noexcept {
  CUresult first = CUDA_SUCCESS;
  while (taken.count > from) {
    const CUresult status = push(driver, taken.contexts[--taken.count]);
    if (first == CUDA_SUCCESS) first = status;
  }
  return first;
}

Emptied empty_stack(const DriverTable& driver) noexcept {
  Emptied emptied;
  emptied.status = pop_all(driver, [&](CUcontext context) {
    if (emptied.count++ == 0) emptied.top = context;
    emptied.bottom = context;
    return true;
  });
  return emptied;
}

}  // namespace ctxbroker::detail
