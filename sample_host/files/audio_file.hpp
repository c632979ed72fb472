// SPDX-License-Identifier: Apache-2.0
// Recordings, read and written block by block as interleaved floats (full scale is 1.0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files/audio_format.hpp"
#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

// What a file says about itself besides its sound; copied to the output.
struct AudioMetadata {
  std::vector<std::pair<int, std::string>> texts;  // SF_STR_*: title, artist, ...
  std::vector<int> channel_map;                    // SF_CHANNEL_MAP_*, empty when not given
};

// One thread at a time.
class AudioReader {
 public:
  // Throws Failure (input): see check_input_file; a format that is not read; truncated; no samples.
  explicit AudioReader(const std::filesystem::path& path);
  AudioReader(AudioReader&&) noexcept;
  AudioReader& operator=(AudioReader&&) noexcept;
  ~AudioReader();

  const AudioFormat& format() const noexcept;
  const AudioMetadata& metadata() const noexcept;
  // Nothing where the file does not say (some FLAC streams).
  std::optional<std::uint64_t> frames() const noexcept;

  // Up to `frames` frames of format().channels samples each; fewer only at the end. Throws Failure
  // (input) when the file is damaged or ends before the frames that it promised.
  std::size_t read(float* interleaved, std::size_t frames);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Samples that are not in the output as a person expects.
struct ClipCount {
  std::uint64_t clipped = 0;       // beyond full scale of whole numbers: stored as the nearest one
  std::uint64_t not_a_number = 0;  // whole numbers: stored as silence; floats: stored as they are
};

// Whole numbers are rounded to the nearest, ties to even, and clipped; float files take every
// sample as it is. One thread at a time.
class AudioWriter {
 public:
  // `file` is borrowed and must outlive the writer. Throws Failure (output).
  AudioWriter(OutputFile& file, const AudioFormat& format, const AudioMetadata& metadata);
  AudioWriter(const AudioWriter&) = delete;
  AudioWriter& operator=(const AudioWriter&) = delete;
  ~AudioWriter();

  // Throws Failure (output): disk full and the like.
  void write(const float* interleaved, std::size_t frames);
  // Completes the file; does not commit it. Throws Failure (output).
  void finish();

  const ClipCount& clips() const noexcept;
  std::uint64_t frames() const noexcept;  // written so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Rounds and clips to `bits` (8 to 32), left-justified in 32: what libsndfile stores exactly.
std::int32_t to_stored(float sample, int bits, ClipCount& clips) noexcept;

}  // namespace ctxbroker::sample_host
