// A recording as a trace file: the JSON object form of the Chrome trace format. One track per
// thread of the CPU, and per lease a track with its plug-ins' work on the device, grouped by
// tenant.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ctxbroker/timeline.hpp"
#include "observe/timeline.hpp"

namespace ctxbroker::detail {

using TenantNames = std::map<std::uint32_t, std::string>;

// Valid JSON whatever the names are: bytes that are no UTF-8 become U+FFFD. Throws what the sink
// throws.
TimelineSummary write_trace(const Recording& recording, const TenantNames& tenants,
                            const TimelineSink& sink);

}  // namespace ctxbroker::detail
