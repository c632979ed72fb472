// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which CUDA driver the broker works on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// A driver that a host can ask for.
enum class DriverChoice {
  automatic,  ///< NVIDIA's driver if it has a device, else the software device.
  nvidia,     ///< NVIDIA's driver.
  software,   ///< The software device: this project's driver, which runs PTX on the CPU.
};

/// Returns "auto", "nvidia" or "software". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(DriverChoice choice) noexcept;

/// Returns the choice that to_string writes as `text`, or nothing for any other text. Thread-safe.
[[nodiscard]] CTXB_API std::optional<DriverChoice> parse_driver_choice(
    std::string_view text) noexcept;

/// The driver that a broker has loaded.
struct DriverInfo {
  DriverChoice kind = DriverChoice::software;  ///< Never automatic.
  std::string path;                            ///< The file of the loaded library.
  int version = 0;     ///< The CUDA version as cuDriverGetVersion reports it: 13000 is 13.0.
  std::string reason;  ///< Why this driver: "CTXBROKER_DRIVER=software", "no NVIDIA driver: ...".
};

}  // namespace ctxbroker
