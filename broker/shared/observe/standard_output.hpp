// SPDX-License-Identifier: Apache-2.0
// The end of a program that prints.
#pragma once

#include <cstdio>

namespace ctxbroker::detail {

// Writes out what standard output still holds. False: not all that was printed could be written,
// now or before. A failed write leaves nothing to be written at the end.
inline bool all_is_printed() noexcept {
  const bool flushed = std::fflush(stdout) == 0;
  return flushed && std::ferror(stdout) == 0;
}

inline constexpr const char* not_printed =
    "standard output cannot be written; look at what reads it, or at the disk";

}  // namespace ctxbroker::detail
