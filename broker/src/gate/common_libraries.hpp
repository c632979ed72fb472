// SPDX-License-Identifier: Apache-2.0
// Knows by name the libraries that serve the whole process.
#pragma once

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// The C or C++ library, whose code every thread begins with.
bool is_starter(const LoadedObject& object) noexcept;
// The library calls functions that anybody has given it: when a thread starts or ends, a timer
// expires, the process exits.
bool calls_for_others(const LoadedObject& object) noexcept;

// Returns whether the code there is of such a library. Throws std::bad_alloc. Any thread.
bool is_code_that_calls_for_others(const void* address);
// Returns whether the code there is of another library or the program's. That calls the driver only
// if the host wants it, unless it is a tenant's. Throws std::bad_alloc. Any thread.
bool is_hosts_code(const void* address);

}  // namespace ctxbroker::detail
