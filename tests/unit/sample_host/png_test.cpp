// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "failure_matcher.hpp"
#include "files/png_file.hpp"
#include "fixtures/png_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

void write(const std::filesystem::path& path, const Image& image, const ImageFormat& format) {
  OutputFile file(path);
  write_png(file, image, format);
  file.commit();
}

struct Kind {
  const char* name;
  int colour_type;
  int depth;
  bool transparency;
};

std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.name;
}

constexpr Kind kinds[] = {
    {"grey1", 0, 1, false},
    {"grey2", 0, 2, false},
    {"grey4", 0, 4, false},
    {"grey8", 0, 8, false},
    {"grey16", 0, 16, false},
    {"grey8_colour_key", 0, 8, true},
    {"grey16_colour_key", 0, 16, true},
    {"grey2_colour_key", 0, 2, true},
    {"grey_alpha8", 4, 8, false},
    {"grey_alpha16", 4, 16, false},
    {"rgb8", 2, 8, false},
    {"rgb16", 2, 16, false},
    {"rgb8_colour_key", 2, 8, true},
    {"rgb16_colour_key", 2, 16, true},
    {"rgba8", 6, 8, false},
    {"rgba16", 6, 16, false},
    {"palette1", 3, 1, false},
    {"palette2", 3, 2, false},
    {"palette4", 3, 4, false},
    {"palette8", 3, 8, false},
    {"palette8_alpha", 3, 8, true},
    {"palette4_alpha", 3, 4, true},
};

struct Extent {
  std::uint32_t width, height;
};

std::ostream& operator<<(std::ostream& stream, const Extent& extent) {
  return stream << extent.width << 'x' << extent.height;
}

class PngRoundTrip
    : public testing::TestWithParam<std::tuple<Kind, Extent, bool /* interlaced */>> {};

TEST_P(PngRoundTrip, SamplesAndFormatStayTheSame) {
  const auto& [kind, extent, interlaced] = GetParam();
  const TempFolder folder;
  RawPng raw{extent.width, extent.height,     kind.depth, kind.colour_type,
             interlaced,   kind.transparency, {}};
  fill_samples(raw, extent.width * 31 + extent.height);
  write_raw_png(folder / "in.png", raw);

  const Image image = read_png(folder / "in.png");
  EXPECT_EQ(image.width, extent.width);
  EXPECT_EQ(image.height, extent.height);
  ASSERT_EQ(image.pixels.size(), std::size_t{4} * extent.width * extent.height);
  write(folder / "out.png", image, image.format);

  const RawPng expected = expanded(raw);
  const RawPng actual = read_raw_png(folder / "out.png");
  EXPECT_EQ(actual.width, expected.width);
  EXPECT_EQ(actual.height, expected.height);
  EXPECT_EQ(actual.depth, expected.depth);
  EXPECT_EQ(actual.colour_type, expected.colour_type);
  EXPECT_EQ(actual.samples, expected.samples);
}

std::string round_trip_name(const testing::TestParamInfo<PngRoundTrip::ParamType>& info) {
  const auto& [kind, extent, interlaced] = info.param;
  return std::string(kind.name) + "_" + std::to_string(extent.width) + "x" +
         std::to_string(extent.height) + (interlaced ? "_interlaced" : "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, PngRoundTrip,
                         testing::Combine(testing::ValuesIn(kinds),
                                          testing::Values(Extent{1, 1}, Extent{1, 9}, Extent{9, 1},
                                                          Extent{17, 13}, Extent{64, 40}),
                                          testing::Bool()),
                         round_trip_name);

TEST(Png, PixelsAreLinearWithStraightAlpha) {
  const TempFolder folder;
  RawPng raw{2, 1, 8, 6, false, false, {255, 128, 0, 64, 10, 20, 30, 0}};
  write_raw_png(folder / "in.png", raw);
  const Image image = read_png(folder / "in.png");
  EXPECT_FLOAT_EQ(image.pixels[0], 1.0F);
  EXPECT_NEAR(image.pixels[1], 0.21586050, 1e-7);  // 128 / 255 decoded
  EXPECT_FLOAT_EQ(image.pixels[2], 0.0F);
  EXPECT_FLOAT_EQ(image.pixels[3], 64 / 255.0F);
  EXPECT_NEAR(image.pixels[4], 10 / 255.0 / 12.92, 1e-8);  // a transparent pixel keeps its colour
}

TEST(Png, DepthCanChange) {
  const TempFolder folder;
  RawPng raw{16, 16, 8, 2, false, false, {}};
  fill_samples(raw, 5);
  write_raw_png(folder / "in.png", raw);
  const Image image = read_png(folder / "in.png");
  write(folder / "wide.png", image, {16, 3});
  RawPng wide = read_raw_png(folder / "wide.png");
  ASSERT_EQ(wide.depth, 16);
  for (std::size_t i = 0; i < raw.samples.size(); ++i) {
    ASSERT_EQ(wide.samples[i], raw.samples[i] * 257);
  }
  write(folder / "narrow.png", read_png(folder / "wide.png"), {8, 3});
  EXPECT_EQ(read_raw_png(folder / "narrow.png").samples, raw.samples);
}

TEST(Png, GreyOfColourIsLuminance) {
  const TempFolder folder;
  Image image;
  image.width = 1;
  image.height = 1;
  image.pixels = {1.0F, 0.0F, 0.0F, 1.0F};
  write(folder / "grey.png", image, {8, 1});
  const double expected = 255 * (1.055 * std::pow(0.2126, 1 / 2.4) - 0.055);
  EXPECT_NEAR(read_raw_png(folder / "grey.png").samples[0], expected, 0.5);
}

TEST(Png, OutOfRangePixelsAreClamped) {
  const TempFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  Image image;
  image.width = 2;
  image.height = 1;
  image.pixels = {-1.0F, 2.0F, nan, nan, infinity, -infinity, 1.0F, 3.0F};
  write(folder / "out.png", image, {8, 4});
  EXPECT_EQ(read_raw_png(folder / "out.png").samples,
            (std::vector<std::uint16_t>{0, 255, 0, 0, 255, 0, 255, 255}));
}

TEST(Png, EveryTruncationIsNoticed) {
  const TempFolder folder;
  RawPng raw{33, 21, 8, 6, false, false, {}};
  fill_samples(raw, 1);
  write_raw_png(folder / "whole.png", raw);
  const std::string bytes = read_bytes(folder / "whole.png");
  for (std::size_t length = 0; length < bytes.size(); length += length < 64 ? 1 : 13) {
    write_bytes(folder / "cut.png", bytes.substr(0, length));
    expect_failure([&] { read_png(folder / "cut.png"); }, ExitCode::input, "cut.png");
  }
  write_bytes(folder / "cut.png", bytes.substr(0, bytes.size() - 1));
  expect_failure([&] { read_png(folder / "cut.png"); }, ExitCode::input, "truncated");
}

TEST(Png, DamageIsNoticed) {
  const TempFolder folder;
  RawPng raw{33, 21, 8, 2, false, false, {}};
  fill_samples(raw, 2);
  write_raw_png(folder / "whole.png", raw);
  std::string bytes = read_bytes(folder / "whole.png");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  write_bytes(folder / "bad.png", bytes);
  expect_failure([&] { read_png(folder / "bad.png"); }, ExitCode::input, "damaged");
}

TEST(Png, WhatIsNoPngIsRefused) {
  const TempFolder folder;
  const auto refuse = [&](const char* name, const char* part) {
    expect_failure([&] { read_png(folder / name); }, ExitCode::input, part);
  };
  refuse("missing.png", "No such file");
  write_bytes(folder / "empty.png", "");
  refuse("empty.png", "is empty (0 bytes); copy or save it again");
  write_bytes(folder / "text.png", "This is a text.\n");
  refuse("text.png", "not a PNG");
  std::filesystem::create_directory(folder / "folder.png");
  refuse("folder.png", "is a folder");
}

TEST(Png, AHugeHeaderIsRefusedBeforeMemoryIsTaken) {
  const TempFolder folder;
  RawPng raw{1, 1, 8, 2, false, false, {1, 2, 3}};
  write_raw_png(folder / "in.png", raw);
  std::string bytes = read_bytes(folder / "in.png");
  bytes.replace(16, 8, std::string("\x00\x01\x00\x00\x00\x01\x00\x00", 8));        // 65536 x 65536
  const auto* header = reinterpret_cast<const unsigned char*>(bytes.data()) + 12;  // "IHDR" ...
  const auto crc = static_cast<std::uint32_t>(::crc32(0, header, 17));
  for (int i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  write_bytes(folder / "huge.png", bytes);
  expect_failure([&] { read_png(folder / "huge.png"); }, ExitCode::input, "65536 x 65536");
}

std::string number(std::uint32_t value);
std::string chunk(const std::string& name, const std::string& data);

// Pixels of 2 GiB would be taken for a file of 100 bytes. An unpacked byte takes an eighth of a
// bit.
TEST(Png, APictureThatCannotBeInItsFileIsRefusedBeforeMemoryIsTaken) {
  const TempFolder folder;
  const auto with = [&](std::uint32_t width, std::uint32_t height) {
    write_bytes(folder / "in.png", "\x89PNG\r\n\x1a\n" +
                                       chunk("IHDR", number(width) + number(height) +
                                                         std::string("\x10\x06\0\0\0", 5)) +
                                       chunk("IDAT", "") + chunk("IEND", ""));
    return folder / "in.png";
  };
  expect_failure([&] { read_png(with(16384, 16384)); }, ExitCode::input,
                 "16384 x 16384 pixels cannot be in 57 bytes");
  expect_failure([&] { read_png(with(64, 64)); }, ExitCode::input, "is damaged");
}

std::string packed(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  EXPECT_EQ(compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                      reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9),
            Z_OK);
  result.resize(size);
  return result;
}

std::string number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& name, const std::string& data) {
  const std::string checked = name + data;
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return number(static_cast<std::uint32_t>(data.size())) + checked +
         number(static_cast<std::uint32_t>(crc));
}

// A white pixel, with these chunks before it, and with zeros behind it in its compressed data.
std::string white_pixel(const std::string& chunks, std::size_t zeros, bool interlaced = false) {
  std::string row("\0\xff\xff\xff", 4);
  row.resize(row.size() + zeros);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", number(1) + number(1) + std::string("\x08\x02\0\0", 4) +
                           (interlaced ? '\1' : '\0')) +
         chunks + chunk("IDAT", packed(row)) + chunk("IEND", "");
}

// A megabyte of zeros is packed into a kilobyte.
TEST(Png, DataBehindThePictureIsNotUnpacked) {
  const TempFolder folder;
  const std::string left_out = "there is data behind the picture, which is left out";
  const auto warnings_of = [&](const std::string& bytes) {
    write_bytes(folder / "in.png", bytes);
    std::vector<std::string> warnings;
    const Image image =
        read_png(folder / "in.png", [&](const std::string& text) { warnings.push_back(text); });
    EXPECT_EQ(image.pixels, std::vector<float>(4, 1.0F));
    return warnings;
  };
  EXPECT_THAT(warnings_of(white_pixel("", 0)), testing::IsEmpty());
  EXPECT_THAT(warnings_of(white_pixel("", 1 << 20)), testing::Not(testing::Contains(left_out)));
  const std::string bomb = white_pixel("", 120 << 20);
  EXPECT_LT(bomb.size(), 200'000U);
  EXPECT_THAT(warnings_of(bomb), testing::ElementsAre(left_out));
  EXPECT_THAT(warnings_of(white_pixel("", 120 << 20, true)), testing::ElementsAre(left_out));
  write_bytes(folder / "in.png", bomb.substr(0, bomb.size() - 12));
  expect_failure([&] { read_png(folder / "in.png"); }, ExitCode::input, "truncated");
}

// Kilobytes that a process has taken at its peak, which reads the file.
long peak_of(const std::filesystem::path& path) {
  const pid_t child = fork();
  if (child == 0) {
    read_png(path);
    _exit(0);
  }
  rusage usage{};
  EXPECT_EQ(wait4(child, nullptr, 0, &usage), child);
  return usage.ru_maxrss;
}

TEST(Png, TextsAreNotUnpacked) {
  const TempFolder folder;
  const std::string text =
      chunk("zTXt", std::string("a\0\0", 3) + packed(std::string(7 << 20, ' ')));
  std::string texts;
  for (int i = 0; i < 20; ++i) texts += text;
  write_bytes(folder / "none.png", white_pixel("", 0));
  write_bytes(folder / "texts.png", white_pixel(texts, 0));
  EXPECT_LT(peak_of(folder / "texts.png"), peak_of(folder / "none.png") + 50'000);
}

TEST(Png, ResolutionAndProfileAreCarriedOver) {
  const TempFolder folder;
  Image image;
  image.width = 1;
  image.height = 1;
  image.pixels = {0.5F, 0.5F, 0.5F, 1.0F};
  image.metadata.resolution = PngMetadata::Resolution{2835, 2834, 1};
  image.metadata.gamma = 0.45455;
  image.metadata.exif = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0};
  write(folder / "a.png", image, {8, 3});
  const Image again = read_png(folder / "a.png");
  ASSERT_TRUE(again.metadata.resolution);
  EXPECT_EQ(again.metadata.resolution->x, 2835U);
  EXPECT_EQ(again.metadata.resolution->y, 2834U);
  ASSERT_TRUE(again.metadata.gamma);
  EXPECT_NEAR(*again.metadata.gamma, 0.45455, 1e-4);
  EXPECT_EQ(again.metadata.exif, image.metadata.exif);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
