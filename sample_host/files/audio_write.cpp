// SPDX-License-Identifier: Apache-2.0
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "exit_code.hpp"
#include "files/audio_file.hpp"

namespace ctxbroker::sample_host {

namespace {

// libsndfile writes through these, so that every failed write is known, whatever the format's own
// code makes of it.
sf_count_t on_length(void* user) {
  return static_cast<OutputFile*>(user)->size();
}
sf_count_t on_seek(sf_count_t offset, int whence, void* user) {
  return static_cast<OutputFile*>(user)->seek(offset, whence);
}
sf_count_t on_read(void* data, sf_count_t bytes, void* user) {
  return static_cast<sf_count_t>(
      static_cast<OutputFile*>(user)->read(data, static_cast<std::size_t>(bytes)));
}
sf_count_t on_write(const void* data, sf_count_t bytes, void* user) {
  return static_cast<OutputFile*>(user)->write(data, static_cast<std::size_t>(bytes)) ? bytes : 0;
}
sf_count_t on_tell(void* user) {
  return static_cast<OutputFile*>(user)->seek(0, SEEK_CUR);
}

}  // namespace

std::int32_t to_stored(float sample, int bits, ClipCount& clips) noexcept {
  if (std::isnan(sample)) {
    ++clips.not_a_number;
    return 0;
  }
  const double scale = std::ldexp(1.0, bits - 1);
  double value = std::nearbyint(static_cast<double>(sample) * scale);
  if (value > scale - 1) {
    // Full scale itself has no code of its own; that alone is no clipping worth a word.
    if (sample > 1.0F) ++clips.clipped;
    value = scale - 1;
  } else if (value < -scale) {
    ++clips.clipped;
    value = -scale;
  }
  return static_cast<std::int32_t>(std::ldexp(value, 32 - bits));
}

struct AudioWriter::Impl {
  OutputFile* output = nullptr;
  SNDFILE* file = nullptr;
  AudioFormat format;
  int bits = 0;
  ClipCount clips;
  std::uint64_t frames = 0;
  std::vector<std::int32_t> stored;

  Failure failure(const std::string& why) const { return output_failure(output->path(), why); }
};

AudioWriter::AudioWriter(OutputFile& file, const AudioFormat& format, const AudioMetadata& metadata)
    : impl_(std::make_unique<Impl>()) {
  impl_->output = &file;
  impl_->format = format;
  impl_->bits = stored_bits(format);
  SF_VIRTUAL_IO io = {on_length, on_seek, on_read, on_write, on_tell};
  SF_INFO info = {};
  info.format = format.code;
  info.channels = format.channels;
  info.samplerate = format.sample_rate;
  impl_->file = sf_open_virtual(&io, SFM_WRITE, &info, &file);
  if (impl_->file == nullptr) {
    file.check();
    throw impl_->failure("cannot be started: " + std::string(sf_strerror(nullptr)) +
                         " Name another file");
  }
  // The chunk with the peak holds the time of day: equal input shall give equal bytes.
  sf_command(impl_->file, SFC_SET_ADD_PEAK_CHUNK, nullptr, SF_FALSE);
  for (const auto& [kind, text] : metadata.texts) {
    sf_set_string(impl_->file, kind, text.c_str());  // formats without a place for it refuse
  }
  if (!metadata.channel_map.empty()) {
    std::vector<int> map = metadata.channel_map;
    sf_command(impl_->file, SFC_SET_CHANNEL_MAP_INFO, map.data(),
               static_cast<int>(map.size() * sizeof(int)));
  }
}

AudioWriter::~AudioWriter() {
  if (impl_->file != nullptr) sf_close(impl_->file);
}

void AudioWriter::write(const float* interleaved, std::size_t frames) {
  const auto count = static_cast<sf_count_t>(frames);
  sf_count_t done = 0;
  const std::size_t samples = frames * static_cast<std::size_t>(impl_->format.channels);
  if (impl_->bits == 0) {
    impl_->clips.not_a_number += static_cast<std::uint64_t>(std::count_if(
        interleaved, interleaved + samples, [](float sample) { return std::isnan(sample); }));
    done = sf_writef_float(impl_->file, interleaved, count);
  } else {
    impl_->stored.resize(samples);
    for (std::size_t i = 0; i < samples; ++i) {
      impl_->stored[i] = to_stored(interleaved[i], impl_->bits, impl_->clips);
    }
    done = sf_writef_int(impl_->file, impl_->stored.data(), count);
  }
  impl_->output->check();
  if (done != count) {
    throw impl_->failure("cannot be written: " + std::string(sf_strerror(impl_->file)) +
                         " Make room there, or name another file");
  }
  impl_->frames += frames;
}

void AudioWriter::finish() {
  SNDFILE* file = impl_->file;
  impl_->file = nullptr;
  const int status = sf_close(file);
  impl_->output->check();
  if (status != 0)
    throw impl_->failure("cannot be completed: " + std::string(sf_error_number(status)) +
                         " Make room there, or name another file");
}

const ClipCount& AudioWriter::clips() const noexcept {
  return impl_->clips;
}
std::uint64_t AudioWriter::frames() const noexcept {
  return impl_->frames;
}

}  // namespace ctxbroker::sample_host
