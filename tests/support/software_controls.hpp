// SPDX-License-Identifier: Apache-2.0
// The software device's test controls, of the device that a broker has loaded.
#pragma once

#include <string>

#include "ctxbroker/software_device.h"

namespace ctxbroker {

struct SoftwareControls {
  // `path` is the device's file, loaded already. All null for any other driver.
  explicit SoftwareControls(const std::string& path);
  explicit operator bool() const noexcept { return restart != nullptr; }

  decltype(&ctxb_software_fail_call) fail_call = nullptr;
  decltype(&ctxb_software_start_counting) start_counting = nullptr;
  decltype(&ctxb_software_stop_counting) stop_counting = nullptr;
  decltype(&ctxb_software_call_count) call_count = nullptr;
  decltype(&ctxb_software_failed_call) failed_call = nullptr;
  decltype(&ctxb_software_restart) restart = nullptr;
};

}  // namespace ctxbroker
