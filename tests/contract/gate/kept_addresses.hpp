// SPDX-License-Identifier: Apache-2.0
// Which addresses of the driver's functions a library keeps.
#pragma once

#include <cstddef>
#include <string>

namespace ctxbroker {

// Of guarded functions, in all that the library may write to.
struct Kept {
  std::size_t past = 0, through = 0;  // the driver's own; the gate's
};
// `file_name` is part of the loaded library's path; `gate` and `driver` are the loader's handles.
Kept kept_addresses(const std::string& file_name, void* gate, void* driver);

}  // namespace ctxbroker
