// SPDX-License-Identifier: Apache-2.0
// Which audio format a file has, and which one the output gets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ctxbroker::sample_host {

struct AudioFormat {
  int code = 0;  // libsndfile's SF_FORMAT_*: file type, sample encoding, byte order
  int channels = 1;
  int sample_rate = 48000;  // Hz
};

// Of an output that is like no input: two channels of 24 bit.
AudioFormat usual_audio_format(int sample_rate) noexcept;

std::string to_string(const AudioFormat& format);  // "WAV, 16 bit PCM, 2 channels, 44100 Hz"

// Bits of a sample that is stored as a whole number (16 also for encodings that take 16-bit samples
// in), or 0 where it is stored as a float.
int stored_bits(const AudioFormat& format) noexcept;

// WAV (RF64 and extensible included), AIFF, FLAC and Ogg are read.
bool readable(const AudioFormat& format) noexcept;

// The output's format, from the input's and the extension of `path`: .wav, .flac, .aif or .aiff.
// The same type keeps its sample encoding; another one takes the same encoding where it can, else
// the nearest that loses nothing (FLAC: 24 bit for floats). `frames` chooses RF64 for a WAV beyond
// 4 GiB. `depth` is 16 or 24 for whole numbers of so many bits, 32 for floats, or 0 for what the
// input has. Throws Failure (output): an extension that is not written, or a format that cannot
// hold this many channels or this sample rate; (usage): a depth that the type does not have.
AudioFormat choose_output_format(const AudioFormat& input, const std::filesystem::path& path,
                                 std::uint64_t frames, int depth = 0);

}  // namespace ctxbroker::sample_host
