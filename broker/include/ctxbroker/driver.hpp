// Which CUDA driver the broker works on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

enum class DriverChoice {
  automatic,  // NVIDIA's driver if it has a device, else the software device
  nvidia,
  software,  // this project's driver that runs PTX on the CPU
};

CTXB_API const char* to_string(DriverChoice choice) noexcept;  // "auto", "nvidia", "software"

// The inverse; nothing for any other text.
CTXB_API std::optional<DriverChoice> parse_driver_choice(std::string_view text) noexcept;

struct DriverInfo {
  DriverChoice kind = DriverChoice::software;  // never automatic
  std::string path;                            // file of the loaded library
  int version = 0;     // CUDA version as cuDriverGetVersion tells it: 13000 is 13.0
  std::string reason;  // why this one: "CTXBROKER_DRIVER=software", "no NVIDIA driver: ..."
};

}  // namespace ctxbroker
