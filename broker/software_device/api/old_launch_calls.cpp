// SPDX-License-Identifier: Apache-2.0
// The launches of CUDA 3: cuFuncSetBlockShape, cuParamSet*, cuLaunch*. What they set stays with the
// function.
#include <cstring>
#include <mutex>

#include "api/entry.hpp"
#include "api/launch.hpp"

using namespace ctxbroker::software;

namespace {

constexpr unsigned most_bytes = 4096;  // of arguments

// Runs change(state) for the function.
template <typename Change>
CUresult change(CUfunction handle, Change&& change) {
  return working([&] {
    const std::shared_ptr<Function> function = Process::instance().functions.find(handle);
    const std::lock_guard lock(function->old_launch.mutex);
    change(function->old_launch);
  });
}

CUresult set_argument(CUfunction handle, int offset, const void* value, unsigned bytes) {
  return change(handle, [&](OldLaunch& launch) {
    check_value(value != nullptr && offset >= 0 && bytes <= most_bytes &&
                static_cast<unsigned>(offset) <= most_bytes - bytes);
    const std::size_t end = static_cast<std::size_t>(offset) + bytes;
    if (launch.arguments.size() < end) launch.arguments.resize(end);
    std::memcpy(launch.arguments.data() + offset, value, bytes);
  });
}

CUresult launch_old(CUfunction handle, int width, int height, CUstream stream) {
  return change(handle, [&](OldLaunch& old) {
    check_value(width > 0 && height > 0);
    std::size_t bytes = old.bytes;
    if (old.arguments.size() < bytes) old.arguments.resize(bytes);
    void* arguments[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old.arguments.data(),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    launch({.function = handle,
            .grid = {static_cast<unsigned>(width), static_cast<unsigned>(height), 1},
            .block = old.block,
            .dynamic_shared = old.shared_bytes,
            .stream = stream,
            .extra = arguments});
  });
}

}  // namespace

CTXB_EXPORT CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  CTXB_COUNT_CALL();
  return change(function, [&](OldLaunch& launch) {
    check_value(x > 0 && y > 0 && z > 0);
    launch.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  });
}

CTXB_EXPORT CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
  CTXB_COUNT_CALL();
  return change(function, [&](OldLaunch& launch) { launch.shared_bytes = bytes; });
}

CTXB_EXPORT CUresult cuParamSetSize(CUfunction function, unsigned int bytes) {
  CTXB_COUNT_CALL();
  return change(function, [&](OldLaunch& launch) {
    check_value(bytes <= most_bytes);
    launch.bytes = bytes;
  });
}

CTXB_EXPORT CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) {
  CTXB_COUNT_CALL();
  return set_argument(function, offset, &value, sizeof value);
}

CTXB_EXPORT CUresult cuParamSetf(CUfunction function, int offset, float value) {
  CTXB_COUNT_CALL();
  return set_argument(function, offset, &value, sizeof value);
}

CTXB_EXPORT CUresult cuParamSetv(CUfunction function, int offset, void* value, unsigned int bytes) {
  CTXB_COUNT_CALL();
  return set_argument(function, offset, value, bytes);
}

CTXB_EXPORT CUresult cuLaunch(CUfunction function) {
  CTXB_COUNT_CALL();
  return launch_old(function, 1, 1, nullptr);
}

CTXB_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  CTXB_COUNT_CALL();
  return launch_old(function, width, height, nullptr);
}

CTXB_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height,
                                       CUstream stream) {
  CTXB_COUNT_CALL();
  return launch_old(function, width, height, stream);
}
