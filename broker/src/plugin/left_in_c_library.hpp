// SPDX-License-Identifier: Apache-2.0
// Finds what a library has given to the C library and the kernel, and what leads into it there.
#pragma once

#include <string>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Finds a timer whose function is in the library, a locked robust mutex, a string of the
// environment and a file's buffer. Returns words for the first one, or none. Throws std::bad_alloc.
// Any thread.
std::string left_in_c_library(const Extent& code);

// Returns the names of the functions that the library imports and that keep what they are given
// where nobody can look, or none. Throws std::bad_alloc. Any thread.
std::string hidden_keepers_of(const Extent& code);

}  // namespace ctxbroker::detail
