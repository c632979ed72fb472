// SPDX-License-Identifier: Apache-2.0
#include "files/audio_format.hpp"

#include <sndfile.h>

#include <algorithm>
#include <array>
#include <span>

#include "exit_code.hpp"
#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

namespace {

struct EncodingRow {
  int code;
  const char* name;
  int bits;  // stored_bits
};

constexpr std::array encodings{
    EncodingRow{SF_FORMAT_PCM_S8, "8 bit PCM", 8},
    EncodingRow{SF_FORMAT_PCM_U8, "8 bit PCM", 8},
    EncodingRow{SF_FORMAT_PCM_16, "16 bit PCM", 16},
    EncodingRow{SF_FORMAT_PCM_24, "24 bit PCM", 24},
    EncodingRow{SF_FORMAT_PCM_32, "32 bit PCM", 32},
    EncodingRow{SF_FORMAT_FLOAT, "32 bit float", 0},
    EncodingRow{SF_FORMAT_DOUBLE, "64 bit float", 0},
    EncodingRow{SF_FORMAT_ULAW, "mu-law", 16},
    EncodingRow{SF_FORMAT_ALAW, "A-law", 16},
    EncodingRow{SF_FORMAT_IMA_ADPCM, "IMA ADPCM", 16},
    EncodingRow{SF_FORMAT_MS_ADPCM, "Microsoft ADPCM", 16},
    EncodingRow{SF_FORMAT_GSM610, "GSM 6.10", 16},
    EncodingRow{SF_FORMAT_VORBIS, "Vorbis", 0},
    EncodingRow{SF_FORMAT_OPUS, "Opus", 0},
};

struct TypeRow {
  int code;
  const char* name;
};

constexpr std::array types{
    TypeRow{SF_FORMAT_WAV, "WAV"},   TypeRow{SF_FORMAT_WAVEX, "WAV"},
    TypeRow{SF_FORMAT_RF64, "RF64"}, TypeRow{SF_FORMAT_AIFF, "AIFF"},
    TypeRow{SF_FORMAT_FLAC, "FLAC"}, TypeRow{SF_FORMAT_OGG, "Ogg"},
};

struct ExtensionRow {
  const char* extension;
  int type;
};

constexpr std::array extensions{
    ExtensionRow{".wav", SF_FORMAT_WAV},
    ExtensionRow{".flac", SF_FORMAT_FLAC},
    ExtensionRow{".aif", SF_FORMAT_AIFF},
    ExtensionRow{".aiff", SF_FORMAT_AIFF},
};

// Encodings to try where a type cannot hold the input's: by its bits, best first.
constexpr std::array<int, 3> whole_8{SF_FORMAT_PCM_S8, SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16};
constexpr std::array<int, 1> whole_16{SF_FORMAT_PCM_16};
constexpr std::array<int, 1> whole_24{SF_FORMAT_PCM_24};
constexpr std::array<int, 2> whole_32{SF_FORMAT_PCM_32, SF_FORMAT_PCM_24};
constexpr std::array<int, 2> floating{SF_FORMAT_FLOAT, SF_FORMAT_PCM_24};

std::span<const int> alternatives(int bits) {
  if (bits == 0) return floating;
  if (bits == 8) return whole_8;
  if (bits == 16) return whole_16;
  return bits == 24 ? std::span<const int>(whole_24) : std::span<const int>(whole_32);
}

const EncodingRow* find_encoding(int code) {
  const auto* row = std::find_if(encodings.begin(), encodings.end(), [&](const EncodingRow& r) {
    return r.code == (code & SF_FORMAT_SUBMASK);
  });
  return row == encodings.end() ? nullptr : row;
}

const TypeRow* find_type(int code) {
  const auto* row = std::find_if(types.begin(), types.end(), [&](const TypeRow& r) {
    return r.code == (code & SF_FORMAT_TYPEMASK);
  });
  return row == types.end() ? nullptr : row;
}

bool possible(const AudioFormat& format) {
  SF_INFO info = {};
  info.format = format.code;
  info.channels = format.channels;
  info.samplerate = format.sample_rate;
  return sf_format_check(&info) != 0;
}

bool is_wav(int type) {
  return type == SF_FORMAT_WAV || type == SF_FORMAT_WAVEX || type == SF_FORMAT_RF64;
}

int type_of_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const ExtensionRow& row : extensions) {
    if (extension == row.extension) return row.type;
  }
  throw output_failure(path, (extension.empty() ? "has no extension"
                                                : "no format with the extension \"" + extension +
                                                      "\" can be written") +
                                 "; use .wav, .flac, .aif or .aiff");
}

// libsndfile's encoding; 0: none.
int encoding_of_depth(int depth, int type) {
  if (depth == 16) return SF_FORMAT_PCM_16;
  if (depth == 24) return SF_FORMAT_PCM_24;
  return depth == 32 && type != SF_FORMAT_FLAC ? SF_FORMAT_FLOAT : 0;
}

[[noreturn]] void refuse_depth(const std::filesystem::path& path, int depth, int type) {
  throw Failure(ExitCode::usage,
                "output file \"" + path.string() + "\": depth " + std::to_string(depth) +
                    ": samples of " + find_type(type)->name + " files have " +
                    (type == SF_FORMAT_FLAC ? "16 or 24" : "16, 24 or 32 (float)") +
                    " bits; give one of these, or another type of output");
}

}  // namespace

AudioFormat usual_audio_format(int sample_rate) noexcept {
  return {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 2, sample_rate};
}

std::string to_string(const AudioFormat& format) {
  const TypeRow* type = find_type(format.code);
  const EncodingRow* encoding = find_encoding(format.code);
  return std::string(type != nullptr ? type->name : "unknown") + ", " +
         (encoding != nullptr ? encoding->name : "unknown encoding") + ", " +
         std::to_string(format.channels) + (format.channels == 1 ? " channel, " : " channels, ") +
         std::to_string(format.sample_rate) + " Hz";
}

int stored_bits(const AudioFormat& format) noexcept {
  const EncodingRow* row = find_encoding(format.code);
  return row != nullptr ? row->bits : 16;
}

bool readable(const AudioFormat& format) noexcept {
  return find_type(format.code) != nullptr && find_encoding(format.code) != nullptr;
}

AudioFormat choose_output_format(const AudioFormat& input, const std::filesystem::path& path,
                                 std::uint64_t frames, int depth) {
  constexpr std::uint64_t wav_limit = 0xFFFFF000;  // of its 32-bit sizes, less room for headers
  const int input_type = input.code & SF_FORMAT_TYPEMASK;
  int type = type_of_extension(path);
  AudioFormat output = input;
  if (type == input_type || (type == SF_FORMAT_WAV && is_wav(input_type))) {
    type = input_type;  // keeps extensible and RF64, and the byte order
  } else {
    output.code = type | (input.code & SF_FORMAT_SUBMASK);
  }
  if (depth != 0) {
    const int encoding = encoding_of_depth(depth, type);
    if (encoding == 0) refuse_depth(path, depth, type);
    output.code = (output.code & ~SF_FORMAT_SUBMASK) | encoding;
  }
  if (depth == 0 && !possible(output)) {
    for (const int encoding : alternatives(stored_bits(input))) {
      output.code = type | encoding;
      if (possible(output)) break;
    }
  }
  if (!possible(output)) {
    throw output_failure(path, "this format cannot hold " + std::to_string(input.channels) +
                                   " channels at " + std::to_string(input.sample_rate) +
                                   " Hz; use .wav");
  }
  const int bits = stored_bits(output);
  const bool wide = (output.code & SF_FORMAT_SUBMASK) == SF_FORMAT_DOUBLE;
  const std::uint64_t sample_bytes = bits != 0 ? static_cast<std::uint64_t>(bits) / 8
                                     : wide    ? 8
                                               : 4;
  const auto channels = static_cast<std::uint64_t>(output.channels);
  if (frames > wav_limit / (sample_bytes * channels)) {
    if (is_wav(type)) output.code = SF_FORMAT_RF64 | (output.code & SF_FORMAT_SUBMASK);
    if (type == SF_FORMAT_AIFF)
      throw output_failure(path, "an AIFF file has at most 4 GiB; use .wav or .flac");
  }
  return output;
}

}  // namespace ctxbroker::sample_host
