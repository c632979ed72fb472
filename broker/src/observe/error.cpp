// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/error.hpp"

#include <array>
#include <utility>

#include "ctxbroker/version.hpp"
#include "observe/enum_names.hpp"

namespace ctxbroker {
namespace {

// In the order of the enumeration.
constexpr std::array<const char*, 25> kind_names{
    "invalid-argument", "wrong-state",   "driver-choice",      "no-driver",         "no-device",
    "driver-call",      "out-of-memory", "context-lost",       "lease-unavailable", "kernel-image",
    "plugin-not-found", "plugin-load",   "plugin-entry",       "plugin-version",    "plugin-init",
    "plugin-failed",    "policy",        "unknown-parameter",  "parameter-value",   "output-file",
    "needs-gpu",        "preset",        "out-of-host-memory", "system-limit",      "over-limit",
};
static_assert(kind_names.size() == static_cast<std::size_t>(ErrorKind::over_limit) + 1);

// " [cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2); device 0; blur]", or nothing.
std::string in_words(const Error::Origin& origin) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  };
  std::string status = origin.status_name;
  if (origin.status != 0) {
    status += status.empty() ? "status " + std::to_string(origin.status)
                             : " (" + std::to_string(origin.status) + ")";
  }
  if (!origin.call.empty() && !status.empty()) {
    add(origin.call + ": " + status);
  } else {
    add(origin.call + status);
  }
  if (origin.device >= 0) add("device " + std::to_string(origin.device));
  if (!origin.tenant.empty()) add("for " + origin.tenant);
  return text.empty() ? text : " [" + text + "]";
}

}  // namespace

const char* to_string(ErrorKind kind) noexcept {
  return detail::name_of(kind_names, kind);
}

Error::Error(ErrorKind kind, const std::string& message, Origin origin)
    : std::runtime_error(message + in_words(origin)),
      kind_(kind),
      message_(message),
      origin_(std::move(origin)) {}

Error::Error(ErrorKind kind, const std::string& message) : Error(kind, message, Origin{}) {}

const char* version() noexcept {
  return CTXB_VERSION;
}

}  // namespace ctxbroker
