// Writes a recording in the JSON object form of the Chrome trace format. Each CPU thread has a
// track. Each lease has a track with the work of its plug-ins on the device; tenants group these
// tracks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ctxbroker/timeline.hpp"
#include "observe/timeline.hpp"

namespace ctxbroker::detail {

using TenantNames = std::map<std::uint32_t, std::string>;

// Always writes valid JSON: bytes of names that are not UTF-8 become U+FFFD. Throws what the sink
// throws.
TimelineSummary write_trace(const Recording& recording, const TenantNames& tenants,
                            const TimelineSink& sink);

}  // namespace ctxbroker::detail
