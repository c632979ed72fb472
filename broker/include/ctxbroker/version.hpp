// The broker's own version.
#pragma once

#include "ctxbroker/export.hpp"

namespace ctxbroker {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;

CTXB_API const char* version() noexcept;  // "0.1.0": of the library that is linked

}  // namespace ctxbroker
