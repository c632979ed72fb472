// SPDX-License-Identifier: Apache-2.0
/// @file
/// The broker's log: one record per event, through one callback of the host.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

/// How much a record matters.
enum class Severity {
  debug,    ///< Details for a developer.
  info,     ///< What the broker did.
  warning,  ///< Something is wrong, and the broker has dealt with it.
  error,    ///< Something is wrong, and the host or a plug-in lost something.
};

/// Returns "debug", "info", "warning" or "error". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(Severity severity) noexcept;

/// One event.
struct Record {
  std::chrono::system_clock::time_point time;
  Severity severity = Severity::info;
  TenantId tenant;          ///< Whom it concerns.
  std::string tenant_name;  ///< "host", the plug-in library's name, or the opened tenant's name.
  const char* topic = "";   ///< "driver", "lease", "module", "plugin", "strike", ... Static text.
  std::string text;         ///< One line.
};

/// Takes one record, on the thread on which the event happens; several threads may call it at once.
///
/// It must not call the broker and must not wait for a thread that does, because the calling thread
/// may hold a broker lock. It computes with the floating-point control (rounding, traps) of the
/// thread that opened the broker, also inside a plug-in's call. An exception is swallowed, and that
/// record is lost. A launch or a guard that goes well makes no record.
using RecordSink = std::function<void(const Record&)>;

}  // namespace ctxbroker
