// What the process did and when: every plug-in call, launch, copy and wait, on the CPU's threads
// and on the device, as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open. Recorded
// through Broker::start_timeline, stop_timeline and write_timeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace ctxbroker {

struct TimelineOptions {
  // Bytes for what is recorded, 128 per span; taken and touched when recording starts, never more
  // later. When they are full, further spans are dropped and counted.
  std::size_t memory_bytes = std::size_t{64} << 20;
};

struct TimelineSummary {
  std::uint64_t spans = 0;    // written, those of the device included
  std::uint64_t dropped = 0;  // for which there was no room
  std::uint64_t threads = 0;  // that recorded something
};

// Takes the file's text piece by piece, in order. What it throws ends the writing.
using TimelineSink = std::function<void(std::string_view)>;

}  // namespace ctxbroker
