// SPDX-License-Identifier: Apache-2.0
// Finds what leads into a library and was left in the process, of which the driver and the gate
// know nothing.
#pragma once

#include <string>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Says in words what was left, and whether the library itself has left it.
struct Left {
  std::string text;  // empty: nothing was found
  bool is_breach = false;
};

// Finds a signal's handler in the library, a thread that was started with a function of it or with
// an object of std::thread of it, what it has given to the C library and the kernel, and handlers,
// streams, facets and memory of the C++ library. A function that was given to another library is
// not found. Throws std::bad_alloc. Any thread.
Left what_is_left_in(const Extent& code);

}  // namespace ctxbroker::detail
