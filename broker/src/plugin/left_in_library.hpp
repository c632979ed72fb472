// SPDX-License-Identifier: Apache-2.0
// Finds what leads into the code of a library and was left in the process: signal handlers, threads
// and handlers of the C++ library, of which the driver and the gate know nothing.
#pragma once

#include <string>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Returns in words what leads into the code: a signal's handler, a thread that was started with a
// function of it or with an object of std::thread that has one, or the handler of std::terminate or
// of operator new. Empty: nothing was found. A destructor of a pthread_key, and a function that was
// given to another library, are not found. Throws std::bad_alloc. Any thread.
std::string what_is_left_in(const Extent& code);

}  // namespace ctxbroker::detail
