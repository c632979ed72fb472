// SPDX-License-Identifier: Apache-2.0
// Names and texts of the driver's status codes.
#pragma once

#include <optional>
#include <string_view>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct ErrorName {
  const char* name;
  const char* text;
};

// Nothing for a number that is no status.
std::optional<ErrorName> find_error_name(CUresult status) noexcept;

// The status of a name like "CUDA_ERROR_OUT_OF_MEMORY"; nothing for another text.
std::optional<CUresult> find_status(std::string_view name) noexcept;

}  // namespace ctxbroker::software
