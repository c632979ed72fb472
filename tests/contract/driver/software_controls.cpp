// SPDX-License-Identifier: Apache-2.0
#include "software_controls.hpp"

#include <dlfcn.h>

namespace ctxbroker::test {
namespace {

template <class Function>
void look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(driver().library, name));
}

}  // namespace

const Controls& controls() {
  static const Controls found = [] {
    Controls all;
    look_up(all.fail_call, "ctxb_software_fail_call");
    look_up(all.start_counting, "ctxb_software_start_counting");
    look_up(all.stop_counting, "ctxb_software_stop_counting");
    look_up(all.call_count, "ctxb_software_call_count");
    look_up(all.failed_call, "ctxb_software_failed_call");
    look_up(all.restart, "ctxb_software_restart");
    return all;
  }();
  return found;
}

}  // namespace ctxbroker::test
