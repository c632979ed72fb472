// SPDX-License-Identifier: Apache-2.0
#include "context/context_stack.hpp"

#include <new>
#include <optional>

namespace ctxbroker::detail {
namespace {

// Pops a context, and tries once more when that fails, because the context would otherwise stay on
// the thread for the code that runs next.
CUresult pop(const DriverTable& driver, CUcontext* popped) noexcept {
  const CUresult status = driver.ctx_pop(popped);
  const bool empty = status == CUDA_ERROR_INVALID_CONTEXT;
  return status == CUDA_SUCCESS || empty ? status : driver.ctx_pop(popped);
}

// Pops until the stack is empty. There is no limit, because code can push any number of contexts.
// `keep(context)` says whether to go on.
template <typename Keep>
CUresult pop_all(const DriverTable& driver, Keep&& keep) noexcept {
  for (;;) {
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
}

// Counts one more context of a stack that is emptied from its top.
void count_context(Emptied& emptied, CUcontext context) noexcept {
  if (emptied.count++ == 0) emptied.top = context;
  emptied.bottom = context;
}

}  // namespace

bool TakenContexts::add(CUcontext context) noexcept {
  if (count < few) {
    own[count++] = context;
    return true;
  }
  try {
    more.push_back(context);
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++count;
  return true;
}

CUcontext TakenContexts::remove_last() noexcept {
  --count;
  if (count < few) return own[count];
  const CUcontext last = more.back();
  more.pop_back();
  if (more.empty()) std::vector<CUcontext>().swap(more);
  return last;
}

void TakenContexts::remove_lowest(CUcontext context) noexcept {
  std::uint32_t lowest = count;
  while (lowest > 0 && at(lowest - 1) != context) --lowest;
  if (lowest == 0) return;
  const auto place = [&](std::uint32_t index) -> CUcontext& {
    return index < few ? own[index] : more[index - few];
  };
  for (std::uint32_t i = lowest; i < count; ++i) place(i - 1) = place(i);
  remove_last();
}

bool TakenContexts::append(const TakenContexts& below) noexcept {
  bool all = true;
  for (std::uint32_t i = 0; i < below.count; ++i) all = add(below.at(i)) && all;
  return all;
}

CUresult take_stack(const DriverTable& driver, TakenContexts& taken) noexcept {
  return pop_all(driver, [&](CUcontext context) {
    if (taken.add(context)) return true;
    put_back(driver, context);
    return false;
  });
}

CUresult put_back(const DriverTable& driver, CUcontext context) noexcept {
  const CUresult status = driver.ctx_push(context);
  return status == CUDA_SUCCESS ? status : driver.ctx_push(context);
}

CUresult give_back_stack(const DriverTable& driver, TakenContexts& taken) noexcept {
  CUresult first = CUDA_SUCCESS;
  while (!taken.empty()) {
    const CUresult status = put_back(driver, taken.remove_last());
    if (first == CUDA_SUCCESS) first = status;
  }
  return first;
}

Emptied empty_stack(const DriverTable& driver) noexcept {
  Emptied emptied;
  emptied.status = pop_all(driver, [&](CUcontext context) {
    count_context(emptied, context);
    return true;
  });
  return emptied;
}

Emptied empty_stack_to(const DriverTable& driver, CUcontext own, CUcontext under,
                       TakenContexts& below) noexcept {
  Emptied emptied;
  bool found_own = false, all_kept = true;
  const auto count = [&](CUcontext context) {
    if (context == own) {  // the nearest to the bottom so far: nothing is known to be below it
      found_own = true;
      emptied.count += below.count;
      while (!below.empty()) below.remove_last();
    } else if (found_own) {
      all_kept = below.add(context) && all_kept;
      return;
    }
    count_context(emptied, context);
  };
  // The last one waits, because it may be what was there before, with the handle of `own` too.
  std::optional<CUcontext> last;
  emptied.status = pop_all(driver, [&](CUcontext context) {
    if (last) count(*last);
    last = context;
    return true;
  });
  const bool under_is_there = last && under != nullptr && *last == under;
  if (last && !under_is_there) count(*last);
  if (under_is_there || (under != nullptr && !found_own)) all_kept = below.add(under) && all_kept;
  if (!all_kept && emptied.status == CUDA_SUCCESS) emptied.status = CUDA_ERROR_OUT_OF_MEMORY;
  return emptied;
}

}  // namespace ctxbroker::detail
