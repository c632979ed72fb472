// SPDX-License-Identifier: Apache-2.0
/// @file
/// What happens within one block of audio: changes of parameters, and where the song is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ctxbroker/plugin_instance.hpp"

namespace ctxbroker {

/// One change of a parameter within a block.
///
/// With `ramp_frames` = 0, the value jumps to `value` at frame `offset`, from 0 on. Otherwise it is
/// `from` at frame `offset`, moves in a straight line, and is `value` at frame
/// `offset + ramp_frames`. A ramp that began in an earlier block has a negative offset, and one
/// that goes on may end after the block. Give such a ramp again with each block on which it lies,
/// with an offset that counts from that block's first frame. Then the values do not depend on where
/// your blocks end.
///
/// A change holds until the parameter's next one. After the job, PluginInstance::parameter is the
/// last value, which is where the next block begins.
struct ParameterChange {
  PluginInstance* instance = nullptr;  ///< In the graph. Borrowed for the call.
  std::size_t parameter = 0;           ///< Its index, see PluginDescription::parameter_index.
  std::int64_t offset = 0;             ///< Frame of the block, less than its width.
  double value = 0;                    ///< The new value, or the one at the ramp's end.
  std::uint32_t ramp_frames = 0;       ///< How long the ramp takes; 0: a jump.
  double from = 0;                     ///< The value at the ramp's beginning; unused for a jump.
};

/// Where the host's song is at a block's first frame. A member that is not set is unknown. Begin a
/// new block where the position jumps.
struct Transport {
  /// Both ends in quarter notes or in seconds.
  struct Loop {
    double begin = 0;
    double end = 0;
  };
  struct TimeSignature {
    std::uint32_t beats_per_bar = 4;
    std::uint32_t beat_unit = 4;
  };
  /// In quarter notes from the song's beginning.
  struct Beats {
    double song = 0;              ///< The position.
    double bar = 0;               ///< Where the bar began.
    std::int64_t bar_number = 0;  ///< The song's first bar is 0.
    Loop loop;
  };
  /// From the song's beginning.
  struct Seconds {
    double song = 0;  ///< The position.
    Loop loop;
  };
  bool playing = false;
  bool recording = false;
  bool looping = false;         ///< The loop is switched on.
  std::optional<double> tempo;  ///< Quarter notes per minute, above 0.
  double tempo_step = 0;        ///< Added to the tempo after each frame.
  std::optional<TimeSignature> time_signature;
  std::optional<Beats> beats;
  std::optional<Seconds> seconds;
};

/// What a job has besides its buffers. Only audio has changes and a transport. Keep one and fill it
/// anew for each job, so that its vector does not allocate.
struct JobEvents {
  /// In the order of their offsets. Of two for one parameter at one offset, the later one counts.
  /// At most GraphOptions::changes_per_job.
  std::vector<ParameterChange> changes;
  std::optional<Transport> transport;
};

}  // namespace ctxbroker
