// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sndfile.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "failure_matcher.hpp"
#include "files/audio_file.hpp"
#include "files/planar.hpp"
#include "fixtures/audio_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

// Block by block, as the audio command does, without plug-ins.
ClipCount copy(const std::filesystem::path& from, const std::filesystem::path& to,
               std::size_t block) {
  AudioReader reader(from);
  const AudioFormat format = choose_output_format(reader.format(), to, reader.frames().value_or(0));
  OutputFile file(to);
  AudioWriter writer(file, format, reader.metadata());
  std::vector<float> samples(block * static_cast<std::size_t>(format.channels));
  for (std::size_t got = block; got == block;) {
    got = reader.read(samples.data(), block);
    if (got > 0) writer.write(samples.data(), got);
  }
  writer.finish();
  file.commit();
  return writer.clips();
}

struct Kind {
  const char* name;
  const char* extension;
  int format;
  int bits;
};

std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.name;
}

constexpr Kind kinds[] = {
    {"wav_u8", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 8},
    {"wav_16", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16},
    {"wav_24", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_24, 24},
    {"wav_32", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_32, 24},
    {"wav_float", ".wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 24},
    {"wav_double", ".wav", SF_FORMAT_WAV | SF_FORMAT_DOUBLE, 24},
    {"wavex_24", ".wav", SF_FORMAT_WAVEX | SF_FORMAT_PCM_24, 24},
    {"wav_16_big_endian", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, 16},
    {"rf64_16", ".wav", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 16},
    {"aiff_s8", ".aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_S8, 8},
    {"aiff_16", ".aif", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 16},
    {"aiff_24", ".aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_24, 24},
    {"aiff_float", ".aiff", SF_FORMAT_AIFF | SF_FORMAT_FLOAT, 24},
    {"aiff_16_little_endian", ".aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE, 16},
    {"flac_8", ".flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_S8, 8},
    {"flac_16", ".flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16},
    {"flac_24", ".flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 24},
};

class AudioRoundTrip
    : public testing::TestWithParam<std::tuple<Kind, int /* channels */, std::size_t /* block */>> {
};

TEST_P(AudioRoundTrip, SamplesAndFormatStayTheSame) {
  const auto& [kind, channels, block] = GetParam();
  const TempFolder folder;
  const std::size_t frames = 1000;
  RawAudio raw{kind.format, channels, 44100, {}};
  raw.samples = noise(frames * static_cast<std::size_t>(channels), kind.bits, 7);
  const auto in = folder / ("in" + std::string(kind.extension));
  const auto out = folder / ("out" + std::string(kind.extension));
  write_raw_audio(in, raw);

  const ClipCount clips = copy(in, out, block);
  EXPECT_EQ(clips.clipped, 0U);
  const RawAudio before = read_raw_audio(in);
  const RawAudio after = read_raw_audio(out);
  EXPECT_EQ(after.format, before.format);
  EXPECT_EQ(after.channels, channels);
  EXPECT_EQ(after.sample_rate, 44100);
  EXPECT_EQ(after.samples, before.samples);
}

std::string round_trip_name(const testing::TestParamInfo<AudioRoundTrip::ParamType>& info) {
  const auto& [kind, channels, block] = info.param;
  return std::string(kind.name) + "_" + std::to_string(channels) + "ch_" + std::to_string(block);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AudioRoundTrip,
                         testing::Combine(testing::ValuesIn(kinds), testing::Values(1, 2, 6),
                                          testing::Values(std::size_t{1}, std::size_t{7},
                                                          std::size_t{1000}, std::size_t{4096})),
                         round_trip_name);

TEST(AudioFormats, AnotherTypeKeepsTheEncodingOrTakesTheNearest) {
  const auto chosen = [](int input, const char* name) {
    return choose_output_format({input, 2, 48000}, name, 1000).code &
           (SF_FORMAT_TYPEMASK | SF_FORMAT_SUBMASK);
  };
  EXPECT_EQ(chosen(SF_FORMAT_WAV | SF_FORMAT_PCM_24, "x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_24);
  EXPECT_EQ(chosen(SF_FORMAT_WAV | SF_FORMAT_FLOAT, "x.FLAC"), SF_FORMAT_FLAC | SF_FORMAT_PCM_24);
  EXPECT_EQ(chosen(SF_FORMAT_WAV | SF_FORMAT_PCM_U8, "x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_S8);
  EXPECT_EQ(chosen(SF_FORMAT_WAV | SF_FORMAT_PCM_32, "x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_24);
  EXPECT_EQ(chosen(SF_FORMAT_WAV | SF_FORMAT_ULAW, "x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_EQ(chosen(SF_FORMAT_FLAC | SF_FORMAT_PCM_S8, "x.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_U8);
  EXPECT_EQ(chosen(SF_FORMAT_OGG | SF_FORMAT_VORBIS, "x.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT);
  EXPECT_EQ(chosen(SF_FORMAT_AIFF | SF_FORMAT_FLOAT, "x.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT);
}

TEST(AudioFormats, SizesBeyondFourGibibytesNeedRf64) {
  const std::uint64_t many = std::uint64_t{1} << 31;
  const AudioFormat wav{SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, 48000};
  EXPECT_EQ(choose_output_format(wav, "x.wav", many).code & SF_FORMAT_TYPEMASK, SF_FORMAT_RF64);
  EXPECT_EQ(choose_output_format(wav, "x.wav", 1000).code & SF_FORMAT_TYPEMASK, SF_FORMAT_WAV);
  expect_failure([&] { choose_output_format(wav, "x.aiff", many); }, ExitCode::output, "4 GiB");
}

TEST(AudioFormats, FormatThatCannotBeWrittenIsRefused) {
  const AudioFormat stereo{SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, 48000};
  const AudioFormat many{SF_FORMAT_WAV | SF_FORMAT_PCM_16, 12, 48000};
  const auto refuse = [](const AudioFormat& input, const char* name, const char* part) {
    expect_failure([&] { choose_output_format(input, name, 1); }, ExitCode::output, part);
  };
  refuse(stereo, "x.mp3", ".mp3");
  refuse(stereo, "x", "no extension");
  refuse(stereo, "x.ogg", ".ogg");
  refuse(many, "x.flac", "12 channels");
}

TEST(Audio, ClippingIsCountedAndOnlyWhereItHappens) {
  const TempFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> samples{0.5F, 1.0F, -1.0F, 1.5F, -2.0F, nan};
  write_float_audio(folder / "in.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, samples);

  const ClipCount none = copy(folder / "in.wav", folder / "float.wav", 4);
  EXPECT_EQ(none.clipped, 0U);
  EXPECT_EQ(none.not_a_number, 1U) << "also where it stays as it is";
  const std::vector<float> kept = read_float_audio(folder / "float.wav");
  EXPECT_EQ(kept[3], 1.5F);
  EXPECT_EQ(kept[4], -2.0F);
  EXPECT_TRUE(std::isnan(kept[5]));

  const ClipCount clips = copy(folder / "in.wav", folder / "clipped.flac", 4);
  EXPECT_EQ(clips.clipped, 2U);
  EXPECT_EQ(clips.not_a_number, 1U);
  constexpr std::int32_t top = 0x7FFFFF00;
  EXPECT_EQ(read_raw_audio(folder / "clipped.flac").samples,
            (std::vector<std::int32_t>{0x40000000, top, INT32_MIN, top, INT32_MIN, 0}));
}

TEST(Audio, SamplesAreRoundedToTheNearest) {
  ClipCount clips;
  EXPECT_EQ(to_stored(0.4999F / 32768, 16, clips), 0);
  EXPECT_EQ(to_stored(0.5F / 32768, 16, clips), 0);  // ties to even
  EXPECT_EQ(to_stored(1.5F / 32768, 16, clips), 2 * 65536);
  EXPECT_EQ(to_stored(-0.6F / 32768, 16, clips), -65536);
  EXPECT_EQ(to_stored(32766.6F / 32768, 16, clips), 32767 * 65536);
  EXPECT_EQ(to_stored(1.0F, 32, clips), INT32_MAX);
  EXPECT_EQ(to_stored(-1.0F, 32, clips), INT32_MIN);
  EXPECT_EQ(clips.clipped, 0U);
}

TEST(Audio, EqualInputGivesEqualBytes) {
  const TempFolder folder;
  write_float_audio(folder / "in.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 2,
                    std::vector<float>(200, 0.25F));
  copy(folder / "in.wav", folder / "a.wav", 64);
  copy(folder / "in.wav", folder / "b.wav", 100);
  EXPECT_EQ(read_bytes(folder / "a.wav"), read_bytes(folder / "b.wav"));
}

TEST(Audio, TagsAreCarriedOver) {
  const TempFolder folder;
  OutputFile file(folder / "in.flac");
  const AudioFormat format{SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1, 48000};
  AudioWriter writer(file, format, {{{SF_STR_TITLE, "A title"}}, {}});
  const std::vector<float> silence(100);
  writer.write(silence.data(), silence.size());
  writer.finish();
  file.commit();
  copy(folder / "in.flac", folder / "out.wav", 16);
  const AudioMetadata metadata = AudioReader(folder / "out.wav").metadata();
  EXPECT_THAT(metadata.texts, testing::Contains(testing::Pair(SF_STR_TITLE, "A title")));
}

TEST(Audio, OggIsRead) {
  const TempFolder folder;
  write_raw_audio(folder / "in.ogg", sine(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 2, 48000, 5000, 440));
  AudioReader reader(folder / "in.ogg");
  EXPECT_EQ(reader.format().channels, 2);
  EXPECT_EQ(reader.frames(), 5000U);
  copy(folder / "in.ogg", folder / "out.wav", 256);
  EXPECT_EQ(read_float_audio(folder / "out.wav"), read_float_audio(folder / "in.ogg"));
}

class AudioTruncation : public testing::TestWithParam<Kind> {};

TEST_P(AudioTruncation, IsNoticedAtEveryLength) {
  const TempFolder folder;
  RawAudio raw = sine(GetParam().format, 2, 44100, 3000, 1000);
  const auto in = folder / ("in" + std::string(GetParam().extension));
  const auto cut = folder / ("cut" + std::string(GetParam().extension));
  const auto out = folder / "out.wav";
  write_raw_audio(in, raw);
  const std::string bytes = read_bytes(in);
  for (std::size_t length = 0; length < bytes.size(); length += length < 128 ? 1 : 97) {
    write_bytes(cut, bytes.substr(0, length));
    expect_failure([&] { copy(cut, out, 256); }, ExitCode::input, "cut");
    ASSERT_FALSE(HasFailure()) << "at length " << length << " of " << bytes.size();
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, AudioTruncation,
    testing::Values(Kind{"wav_16", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16},
                    Kind{"wavex_24", ".wav", SF_FORMAT_WAVEX | SF_FORMAT_PCM_24, 24},
                    Kind{"rf64_16", ".wav", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 16},
                    Kind{"wav_big_endian", ".wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG,
                         16},
                    Kind{"aiff_16", ".aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 16},
                    Kind{"flac_16", ".flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16},
                    Kind{"ogg", ".ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16}),
    [](const auto& cut) { return std::string(cut.param.name); });

TEST(Audio, AStreamedWavIsTakenAsItIs) {
  const TempFolder folder;
  write_raw_audio(folder / "in.wav", sine(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 44100, 100, 1000));
  std::string bytes = read_bytes(folder / "in.wav");
  bytes.replace(4, 4, "\xff\xff\xff\xff");
  bytes.replace(bytes.find("data") + 4, 4, "\xff\xff\xff\xff");
  write_bytes(folder / "stream.wav", bytes);
  EXPECT_EQ(AudioReader(folder / "stream.wav").frames(), 100U);
}

TEST(Audio, FileThatIsNoRecordingIsRefused) {
  const TempFolder folder;
  const auto refuse = [&](const char* name, const char* part) {
    expect_failure([&] { const AudioReader reader(folder / name); }, ExitCode::input, part);
  };
  refuse("missing.wav", "No such file");
  write_bytes(folder / "empty.wav", "");
  refuse("empty.wav", "is empty (0 bytes); copy or save it again");
  write_bytes(folder / "text.wav",
              "This is a text, and a rather long one, of no samples at all.\n");
  refuse("text.wav", "Copy it again, or convert it");
  write_raw_audio(folder / "none.wav", {SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, 48000, {}});
  refuse("none.wav", "holds no samples");
  write_raw_audio(folder / "sun.au", sine(SF_FORMAT_AU | SF_FORMAT_PCM_16, 1, 48000, 10, 100));
  refuse("sun.au", "unsupported format");
}

TEST(Planar, InterleavingUndoesDeinterleaving) {
  const std::vector<float> interleaved{1, 10, 100, 2, 20, 200};
  std::vector<float> planar(6);
  std::vector<float> again(6);
  deinterleave(interleaved.data(), 2, 3, planar.data());
  EXPECT_THAT(planar, testing::ElementsAre(1, 2, 10, 20, 100, 200));
  interleave(planar.data(), 2, 3, again.data());
  EXPECT_EQ(again, interleaved);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
