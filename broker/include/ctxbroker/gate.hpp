// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the gate stands between the plug-ins and the driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// When the gate came into the process.
enum class GateMode {
  none,           ///< Not at all. Guards and the shield are the only protection.
  before_driver,  ///< Before the driver. Everybody who asks for the driver gets the gate.
  late,           ///< After the driver. Only the tenants' own libraries call the gate.
};

/// Returns "none", "before_driver" or "late". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(GateMode mode) noexcept;

/// A function that the driver has and the gate does not know, because the driver is newer. Calls of
/// it are not held back.
struct UnknownFunction {
  std::string name;            ///< As the driver exports it, or as it was looked up.
  std::uint64_t look_ups = 0;  ///< How often the gate has handed it out.
};

/// What the gate can do in this process.
struct GateInfo {
  /// The gate checks the tenants' calls of the driver: `mode` is before_driver or late.
  bool in_force = false;
  /// Why the gate is not in force. If it is: how it came into the process, and what a late gate
  /// cannot hold back.
  std::string reason;
  GateMode mode = GateMode::none;
  /// One line for each profiler, checker, debugger or interposer in the process: what it is and
  /// what follows from it.
  std::vector<std::string> tools{};
  /// The CUDA version whose driver functions the gate knows, as DriverInfo::version: 13050 is 13.5.
  /// 0: the gate is not in force.
  int cuda_version = 0;
  /// Functions of a newer driver that the gate does not know, by name. Their look-ups are passed on
  /// to the driver.
  std::vector<UnknownFunction> unknown_functions{};
};

}  // namespace ctxbroker
