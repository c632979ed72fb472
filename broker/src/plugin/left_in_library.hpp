// SPDX-License-Identifier: Apache-2.0
// Finds what leads into the code of a library and was left in the process: signal handlers, threads
// and handlers of the C++ library, of which the driver and the gate know nothing.
#pragma once

#include <string>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Returns in words what leads into the code: a signal's handler, a thread that was started with a
// function of it or with an object of std::thread that has one, or the handler of std::terminate or
// of operator new. Empty: nothing was found. A function that was given to another library is not
// found. Throws std::bad_alloc. Any thread.
std::string what_is_left_in(const Extent& code);

// Deletes the keys of pthread_key_create whose destructors were in the code, which has left the
// process. Returns how many there were. A key is looked for only then, because most libraries
// delete theirs when they are unloaded. Any thread.
int delete_left_keys(const Extent& code) noexcept;

}  // namespace ctxbroker::detail
