// SPDX-License-Identifier: Apache-2.0
#include "support/driver_functions.hpp"

#include <dlfcn.h>

namespace ctxbroker {

DriverFunctions::DriverFunctions(void* library) {
#define CTXB_LOAD(name) (name) = reinterpret_cast<decltype(name)>(dlsym(library, #name));
  CTXB_DRIVER_CALLS(CTXB_LOAD)
#undef CTXB_LOAD
}

}  // namespace ctxbroker
