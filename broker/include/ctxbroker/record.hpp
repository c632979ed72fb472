// What the broker tells the host while it works: one record per event, through one callback.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

enum class Severity { debug, info, warning, error };

CTXB_API const char* to_string(Severity severity) noexcept;

struct Record {
  std::chrono::system_clock::time_point time;
  Severity severity = Severity::info;
  TenantId tenant;
  std::string tenant_name;  // "host", or the plug-in library's name
  const char* topic = "";   // "driver", "lease", "module", "plugin", "strike", ...: static text
  std::string text;         // one line
};

// Called by the thread on which the event happens, several threads at once. Must not throw, must
// not call the broker, and must not wait for a thread that does: a lock of the broker may be held.
// Never called in a launch or a guard that goes well.
using RecordSink = std::function<void(const Record&)>;

}  // namespace ctxbroker
