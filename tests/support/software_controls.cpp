// SPDX-License-Identifier: Apache-2.0
#include "support/software_controls.hpp"

#include <dlfcn.h>

namespace ctxbroker {

SoftwareControls::SoftwareControls(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  const auto look_up = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  look_up(fail_call, "ctxb_software_fail_call");
  look_up(start_counting, "ctxb_software_start_counting");
  look_up(stop_counting, "ctxb_software_stop_counting");
  look_up(call_count, "ctxb_software_call_count");
  look_up(failed_call, "ctxb_software_failed_call");
  look_up(restart, "ctxb_software_restart");
  dlclose(library);  // only the count of dlopen above
}

}  // namespace ctxbroker
