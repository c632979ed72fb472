// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Returns the object that was opened, and those of the others that came with it, are needed by
// these alone, and fit. Objects before it in the list were opened by somebody else. Throws
// std::bad_alloc.
std::vector<const LoadedObject*> brought(const std::vector<LoadedObject>& present,
                                         const LoadedObject& opened,
                                         const std::function<bool(const LoadedObject&)>& fits);

}  // namespace ctxbroker::detail
