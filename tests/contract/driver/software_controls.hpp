// SPDX-License-Identifier: Apache-2.0
// The software device's test controls, looked up as any test does it.
#pragma once

#include "ctxbroker/software_device.h"
#include "driver.hpp"

namespace ctxbroker::test {

struct Controls {
  decltype(&ctxb_software_fail_call) fail_call = nullptr;
  decltype(&ctxb_software_start_counting) start_counting = nullptr;
  decltype(&ctxb_software_stop_counting) stop_counting = nullptr;
  decltype(&ctxb_software_call_count) call_count = nullptr;
  decltype(&ctxb_software_failed_call) failed_call = nullptr;
  decltype(&ctxb_software_restart) restart = nullptr;
};

const Controls& controls();

}  // namespace ctxbroker::test
