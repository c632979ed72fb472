// SPDX-License-Identifier: Apache-2.0
// Is a recording complete? libsndfile plays what is left of a truncated file without a word.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ctxbroker::sample_host {

// What is missing, in words ("the data chunk says 88200 bytes, 500 are there"), or nothing. Looks
// at WAV (RIFF, RIFX, RF64), AIFF and Ogg; FLAC says itself how many frames it has. A WAV whose
// sizes are the placeholders of a stream (0, or near 2 or 4 GiB) is taken as it is.
std::optional<std::string> find_truncation(const std::filesystem::path& path);

}  // namespace ctxbroker::sample_host
