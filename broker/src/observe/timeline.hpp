// The recording behind the timeline: memory taken when it starts, handed to the threads in chunks
// by one atomic addition. There is one for the process, whatever the number of brokers, because
// the guards that record know no broker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "observe/span.hpp"

namespace ctxbroker::detail {

// Starts anew; what was recorded before is forgotten. Throws Error: wrong_state while it records,
// invalid_argument for less memory than one chunk; std::bad_alloc.
void start_recording(std::size_t memory_bytes);

// Waits until no thread is inside record_span any more (some ns each). Does nothing when it does
// not record. What was recorded stays until the next start.
void stop_recording() noexcept;

struct RecordedThread {
  std::uint64_t id = 0;  // the system's
  std::string name;
  std::vector<Span> spans;  // an outer one before those inside it
};
struct Recording {
  std::uint64_t started = 0;  // ns, timeline_now()
  std::uint64_t dropped = 0;
  std::vector<RecordedThread> threads;  // by id
};

// A copy of what was recorded. Throws Error (wrong_state) while it records, or when it never did.
Recording recorded();

}  // namespace ctxbroker::detail
