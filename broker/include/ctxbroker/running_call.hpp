// SPDX-License-Identifier: Apache-2.0
/// @file
/// What plug-ins do now: for a host that waits and wants to say for whom.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// A function of a plug-in that runs now, or a wait for a plug-in's work on the device.
struct RunningCall {
  std::string plugin;        ///< The plug-in's id. Empty: a function of the whole library ("init").
  std::string library;       ///< The library's file. Empty while the library is being opened.
  std::string function;      ///< "process", "activate", ...; "work on the device" for such a wait.
  std::uint64_t thread = 0;  ///< The system's number of the thread.
  std::chrono::nanoseconds elapsed{0};  ///< How long it has run, to some milliseconds.
};

/// Returns what runs now, in all brokers of the process: of each thread the innermost call.
///
/// It takes no lock that a plug-in could hold, so it answers also while a plug-in's function never
/// returns. A call that begins or ends meanwhile may be missing.
///
/// @throws std::bad_alloc
/// Thread-safe.
[[nodiscard]] CTXB_API std::vector<RunningCall> running_calls();

}  // namespace ctxbroker
