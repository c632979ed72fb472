// SPDX-License-Identifier: Apache-2.0
// cuInit, cuDriverGetVersion, cuGetErrorName, cuGetErrorString.
#include "api/entry.hpp"
#include "api/error_names.hpp"
#include "api/process.hpp"
#include "api/tool_injection.hpp"

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuInit(unsigned int flags) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(flags == 0);
    CUresult status = check_failures_of_environment();
    if (status == CUDA_SUCCESS) status = Process::initialise();
    if (status == CUDA_SUCCESS) inject_tool();
    return status;
  });
}

CTXB_EXPORT CUresult cuDriverGetVersion(int* version) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(version != nullptr);
    *version = cuda_version;
  });
}

CTXB_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(text != nullptr);
    auto found = find_error_name(error);
    *text = !found ? nullptr : found->name;
    check_value(found.has_value());
  });
}

CTXB_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(text != nullptr);
    auto found = find_error_name(error);
    *text = !found ? nullptr : found->text;
    check_value(found.has_value());
  });
}
