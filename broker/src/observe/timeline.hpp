// SPDX-License-Identifier: Apache-2.0
// The recording behind the timeline. It allocates its memory at the start and hands chunks of it to
// threads with one atomic addition. A process has one recording, because the guards that record do
// not know a broker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ctxbroker/timeline.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

// Starts a new recording and drops the last one. Throws Error: wrong_state when a recording runs,
// invalid_argument when the memory is smaller than one chunk. Throws std::bad_alloc.
void start_recording(std::size_t memory_bytes);

// Stops the recording and waits until every thread has left record_span, which takes some
// nanoseconds. Does nothing when no recording runs. The recorded spans stay until the next start.
void stop_recording() noexcept;

struct RecordedThread {
  std::uint64_t id = 0;  // the operating system's
  std::string name;
  std::vector<Span> spans;  // an outer span before its inner spans
};
struct Recording {
  std::uint64_t started = 0;  // ns, timeline_now()
  std::uint64_t dropped = 0;
  std::vector<RecordedThread> threads;  // by id
};

// Returns a copy of the recorded spans. Throws Error (wrong_state) while a recording runs and when
// none was ever started.
Recording recorded();

using TenantNames = std::map<std::uint32_t, std::string>;

// Writes a recording in the JSON object form of the Chrome trace format. Each CPU thread has a
// track. Each lease has a track with the work of its plug-ins on the device; tenants group these
// tracks. Always writes valid JSON: bytes of names that are not UTF-8 become U+FFFD. Throws what
// the sink throws. In trace_file.cpp.
TimelineSummary write_trace(const Recording& recording, const TenantNames& tenants,
                            const TimelineSink& sink);

}  // namespace ctxbroker::detail
