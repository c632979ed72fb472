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

}  // namespace ctxbroker::detail
