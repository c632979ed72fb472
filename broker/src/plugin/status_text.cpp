// SPDX-License-Identifier: Apache-2.0
#include "plugin/status_text.hpp"

#include <array>
#include <utility>

#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

#define CTXB_NAMED(code)                \
  std::pair<ctxb_status, const char*> { \
    code, #code                         \
  }
constexpr std::array status_names{
    CTXB_NAMED(CTXB_OK),
    CTXB_NAMED(CTXB_AGAIN),
    CTXB_NAMED(CTXB_BYPASS),
    CTXB_NAMED(CTXB_ERROR),
    CTXB_NAMED(CTXB_ERROR_INVALID_ARGUMENT),
    CTXB_NAMED(CTXB_ERROR_UNSUPPORTED),
    CTXB_NAMED(CTXB_ERROR_UNAVAILABLE),
    CTXB_NAMED(CTXB_ERROR_OUT_OF_DEVICE_MEMORY),
    CTXB_NAMED(CTXB_ERROR_OUT_OF_HOST_MEMORY),
    CTXB_NAMED(CTXB_ERROR_NO_KERNEL_IMAGE),
    CTXB_NAMED(CTXB_ERROR_CONTEXT_LOST),
    CTXB_NAMED(CTXB_ERROR_DEADLINE),
    CTXB_NAMED(CTXB_ERROR_VERSION),
    CTXB_NAMED(CTXB_ERROR_WRONG_STATE),
    CTXB_NAMED(CTXB_ERROR_DRIVER),
    CTXB_NAMED(CTXB_ERROR_NOT_FOUND),
    CTXB_NAMED(CTXB_ERROR_SYSTEM_LIMIT),
};
#undef CTXB_NAMED

}  // namespace

const char* status_name(ctxb_status status) noexcept {
  for (const auto& [code, name] : status_names) {
    if (code == status) return name;
  }
  return "an unknown status";
}

ctxb_status status_for(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kernel_image:
      return CTXB_ERROR_NO_KERNEL_IMAGE;
    case ErrorKind::out_of_memory:
      return CTXB_ERROR_OUT_OF_DEVICE_MEMORY;
    case ErrorKind::out_of_host_memory:
      return CTXB_ERROR_OUT_OF_HOST_MEMORY;
    case ErrorKind::system_limit:
      return CTXB_ERROR_SYSTEM_LIMIT;
    case ErrorKind::context_lost:
      return CTXB_ERROR_CONTEXT_LOST;
    default:
      return CTXB_ERROR_DRIVER;
  }
}

ctxb_status status_for_driver(int driver_status) noexcept {
  const auto status = static_cast<CUresult>(driver_status);
  return status == CUDA_SUCCESS ? CTXB_OK : status_for(kind_of(status));
}

}  // namespace ctxbroker::detail
