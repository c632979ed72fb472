// Names and texts of the driver's status codes.
#pragma once

#include <optional>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct ErrorName {
  const char* name;
  const char* text;
};

// Nothing for a number that is no status.
std::optional<ErrorName> find_error_name(CUresult status) noexcept;

}  // namespace ctxbroker::software
