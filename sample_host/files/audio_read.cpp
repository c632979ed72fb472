// SPDX-License-Identifier: Apache-2.0
#include <sndfile.h>

#include <array>

#include "files/audio_completeness.hpp"
#include "files/audio_file.hpp"
#include "files/input_file.hpp"
#include "files/start.hpp"

namespace ctxbroker::sample_host {

namespace {

struct Closer {
  void operator()(SNDFILE* file) const noexcept { sf_close(file); }
};

AudioMetadata read_metadata(SNDFILE* file, int channels) {
  constexpr std::array kinds{SF_STR_TITLE,   SF_STR_COPYRIGHT,   SF_STR_ARTIST,
                             SF_STR_COMMENT, SF_STR_DATE,        SF_STR_ALBUM,
                             SF_STR_LICENSE, SF_STR_TRACKNUMBER, SF_STR_GENRE};
  AudioMetadata metadata;
  for (const int kind : kinds) {
    const char* text = sf_get_string(file, kind);
    if (text != nullptr && *text != 0) metadata.texts.emplace_back(kind, text);
  }
  std::vector<int> map(static_cast<std::size_t>(channels));
  const int bytes = static_cast<int>(map.size() * sizeof(int));
  if (sf_command(file, SFC_GET_CHANNEL_MAP_INFO, map.data(), bytes) == SF_TRUE) {
    metadata.channel_map = map;
  }
  return metadata;
}

}  // namespace

struct AudioReader::Impl {
  std::filesystem::path path;
  std::unique_ptr<SNDFILE, Closer> file;
  AudioFormat format;
  AudioMetadata metadata;
  std::optional<std::uint64_t> frames;
  std::uint64_t position = 0;
};

AudioReader::AudioReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  check_input_file(path);
  impl_->path = path;
  // Asked first: libsndfile 1.2 loses memory when it opens a truncated Ogg file.
  if (const auto truncation = find_truncation(path)) {
    throw input_failure(path, "is truncated: " + *truncation + "; copy it again");
  }
  SF_INFO info = {};
  impl_->file.reset(sf_open(from_start(path).c_str(), SFM_READ, &info));
  if (!impl_->file) {
    throw input_failure(
        path, std::string("is not a recording that can be read (WAV, FLAC, AIFF, Ogg): ") +
                  sf_strerror(nullptr) + " Copy it again, or convert it to one of these");
  }
  impl_->format = {info.format, info.channels, info.samplerate};
  if (!readable(impl_->format)) {
    throw input_failure(path, "has an unsupported format; convert it to WAV, FLAC or AIFF");
  }
  if (info.frames == 0) throw input_failure(path, "holds no samples; record or copy it again");
  if (info.frames > 0 && info.frames < SF_COUNT_MAX) {
    impl_->frames = static_cast<std::uint64_t>(info.frames);
  }
  impl_->metadata = read_metadata(impl_->file.get(), info.channels);
}

AudioReader::AudioReader(AudioReader&&) noexcept = default;
AudioReader& AudioReader::operator=(AudioReader&&) noexcept = default;
AudioReader::~AudioReader() = default;

const AudioFormat& AudioReader::format() const noexcept {
  return impl_->format;
}
const AudioMetadata& AudioReader::metadata() const noexcept {
  return impl_->metadata;
}
std::optional<std::uint64_t> AudioReader::frames() const noexcept {
  return impl_->frames;
}

std::size_t AudioReader::read(float* interleaved, std::size_t frames) {
  const sf_count_t got =
      sf_readf_float(impl_->file.get(), interleaved, static_cast<sf_count_t>(frames));
  const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
  impl_->position += count;
  if (sf_error(impl_->file.get()) != SF_ERR_NO_ERROR) {
    throw input_failure(impl_->path, "is damaged after " + std::to_string(impl_->position) +
                                         " frames: " + sf_strerror(impl_->file.get()) +
                                         " Copy it again");
  }
  if (count < frames) {
    if (impl_->frames && impl_->position < *impl_->frames) {
      throw input_failure(impl_->path, "is truncated: it should have " +
                                           std::to_string(*impl_->frames) + " frames and has " +
                                           std::to_string(impl_->position) + "; copy it again");
    }
    if (impl_->position == 0)
      throw input_failure(impl_->path, "holds no samples; record or copy it again");
  }
  return count;
}

}  // namespace ctxbroker::sample_host
