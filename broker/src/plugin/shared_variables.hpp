// SPDX-License-Identifier: Apache-2.0
// Finds variables that a library shares with another one that it does not need.
//
// A process keeps one of all inline variables, static members of templates and static variables of
// inline functions that bear one name (STB_GNU_UNIQUE), also where each library was opened for
// itself alone. What one tenant writes there, the other one reads.
#pragma once

#include <string>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Says, in one sentence for each other library, which variables of the library in `code` are really
// that one's. Constants do not count, and neither do libraries that it needs and its `relatives`.
// Throws std::bad_alloc. Any thread.
std::vector<std::string> find_shared_variables(const Extent& code,
                                               const std::vector<Extent>& relatives);

}  // namespace ctxbroker::detail
