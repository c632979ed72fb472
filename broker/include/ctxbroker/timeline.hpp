// SPDX-License-Identifier: Apache-2.0
/// @file
/// The timeline: every plug-in call, launch, copy and wait, on the CPU's threads and on the device.
/// Broker::start_timeline, stop_timeline and write_timeline record it. Perfetto (ui.perfetto.dev)
/// and chrome://tracing open the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace ctxbroker {

/// How to record.
struct TimelineOptions {
  /// Memory for the recording, in bytes; a span takes 128. Broker::start_timeline allocates all of
  /// it. When it is full, further spans are dropped and counted.
  std::size_t memory_bytes = std::size_t{64} << 20;
};

/// What was written.
struct TimelineSummary {
  std::uint64_t spans = 0;    ///< Spans in the file, the device's included.
  std::uint64_t dropped = 0;  ///< Spans that did not fit into memory.
  std::uint64_t threads = 0;  ///< Threads that recorded something.
};

/// Takes the file's text in pieces, in order. An exception ends the writing and leaves through
/// Broker::write_timeline.
using TimelineSink = std::function<void(std::string_view)>;

}  // namespace ctxbroker
