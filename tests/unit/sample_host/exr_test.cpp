// SPDX-License-Identifier: Apache-2.0
#include "files/exr_file.hpp"

#include <ImfChromaticitiesAttribute.h>
#include <ImfCompression.h>
#include <ImfOutputFile.h>  // else clang-tidy takes its declaration elsewhere for that of ours
#include <ImfStandardAttributes.h>
#include <ImfStringAttribute.h>
#include <ImfTileDescription.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "failure_matcher.hpp"
#include "files/exr_samples.hpp"
#include "files/image_file.hpp"
#include "fixtures/exr_fixture.hpp"
#include "fixtures/png_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;

void write(const std::filesystem::path& path, const Image& image, const ImageFormat& format) {
  OutputFile file(path);
  write_exr(file, image, format);
  file.commit();
}

struct Kind {
  const char* name;
  std::vector<std::string> channels;
  int count;
};

std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.name;
}

struct Layout {
  const char* name;
  int tile;  // 0: scanlines
  Imf::LevelMode levels;
  Imf::LineOrder order;
  Imf::Compression compression;
};

std::ostream& operator<<(std::ostream& stream, const Layout& layout) {
  return stream << layout.name;
}

class ExrRoundTrip : public testing::TestWithParam<std::tuple<Kind, Layout, Imf::PixelType>> {};

TEST_P(ExrRoundTrip, RoundTripChangesNoBit) {
  const auto& [kind, layout, type] = GetParam();
  const TempFolder folder;
  RawExr raw = make_exr(37, 41, kind.channels, type);
  if (type == Imf::FLOAT) raw.channels.erase("A");  // see FloatsKeepAllButTheirLastBit
  raw.header.lineOrder() = layout.order;
  raw.header.compression() = layout.compression;
  if (layout.tile != 0) {
    const auto size = static_cast<unsigned>(layout.tile);
    raw.header.setTileDescription(Imf::TileDescription(size, size + 3, layout.levels));
  }
  if (layout.levels == Imf::ONE_LEVEL) {
    write_raw_exr(folder / "in.exr", raw);
  } else {
    raw = make_exr(32, 32, kind.channels, type);
    raw.channels.erase("A");
    raw.header.setTileDescription(Imf::TileDescription(32, 32, layout.levels));
    write_raw_exr(folder / "in.exr", raw);
  }
  const Image image = read_exr(folder / "in.exr", [](const auto& text) { ADD_FAILURE() << text; });
  EXPECT_EQ(image.width, raw.width());
  EXPECT_EQ(image.height, raw.height());
  EXPECT_EQ(image.format, (ImageFormat{type == Imf::HALF ? 16 : 32,
                                       kind.count - (raw.channels.size() < kind.channels.size()),
                                       ImageType::exr}));
  write(folder / "out.exr", image, image.format);
  const RawExr out = read_raw_exr(folder / "out.exr");
  EXPECT_EQ(out.type, type);
  EXPECT_EQ(out.channels, raw.channels);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ExrRoundTrip,
    testing::Combine(
        testing::Values(Kind{"rgb", {"R", "G", "B"}, 3}, Kind{"rgba", {"R", "G", "B", "A"}, 4},
                        Kind{"grey", {"Y"}, 1}, Kind{"grey_alpha", {"Y", "A"}, 2}),
        testing::Values(
            Layout{"zip", 0, Imf::ONE_LEVEL, Imf::INCREASING_Y, Imf::ZIP_COMPRESSION},
            Layout{"none_decreasing", 0, Imf::ONE_LEVEL, Imf::DECREASING_Y, Imf::NO_COMPRESSION},
            Layout{"piz", 0, Imf::ONE_LEVEL, Imf::INCREASING_Y, Imf::PIZ_COMPRESSION},
            Layout{"tiles", 8, Imf::ONE_LEVEL, Imf::RANDOM_Y, Imf::RLE_COMPRESSION},
            Layout{"tile_beyond_image", 64, Imf::ONE_LEVEL, Imf::INCREASING_Y,
                   Imf::ZIPS_COMPRESSION},
            Layout{"mipmap", 32, Imf::MIPMAP_LEVELS, Imf::INCREASING_Y, Imf::ZIP_COMPRESSION}),
        testing::Values(Imf::HALF, Imf::FLOAT)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name +
             (std::get<2>(info.param) == Imf::HALF ? "_half" : "_float");
    });

TEST(Exr, ColoursBecomeStraight) {
  const TempFolder folder;
  RawExr raw = make_exr(4, 1, {"R", "G", "B", "A"});
  raw.channels["R"] = {0.25F, 0.5F, 3.0F, 1.0F};
  raw.channels["A"] = {0.5F, 1.0F, 0.0F, -1.0F};
  write_raw_exr(folder / "in.exr", raw);
  Image image = read_exr(folder / "in.exr");
  EXPECT_EQ(image.pixels[0], 0.5F);
  EXPECT_EQ(image.pixels[4], 0.5F);
  EXPECT_EQ(image.pixels[8], 3.0F);   // a glow: light without cover
  EXPECT_EQ(image.pixels[12], 1.0F);  // nonsense stays what it was
  write(folder / "again.exr", image, image.format);
  EXPECT_EQ(read_raw_exr(folder / "again.exr").channels, raw.channels);
  image.exr = nullptr;  // as from a PNG, where the colour of nothing is nothing
  write(folder / "png.exr", image, image.format);
  EXPECT_THAT(read_raw_exr(folder / "png.exr").channels["R"], ElementsAre(0.25F, 0.5F, 0.0F, 1.0F));
}

TEST(Exr, FloatsKeepAllButTheirLastBit) {
  const TempFolder folder;
  RawExr raw = make_exr(64, 64, {"R", "G", "B", "A"}, Imf::FLOAT);
  for (float& value : raw.channels["R"]) value *= 1.2345678F;
  write_raw_exr(folder / "in.exr", raw);
  const Image image = read_exr(folder / "in.exr");
  write(folder / "out.exr", image, image.format);
  RawExr out = read_raw_exr(folder / "out.exr");
  EXPECT_EQ(out.channels["A"], raw.channels["A"]);
  for (std::size_t i = 0; i < raw.channels["R"].size(); ++i) {
    const float before = raw.channels["R"][i];
    const float alpha = raw.channels["A"][i];
    const float slack = alpha == 0.0F || alpha == 1.0F ? 0.0F : before * 1.2e-7F;
    ASSERT_LE(std::abs(out.channels["R"][i] - before), slack) << alpha;
  }
}

TEST(Exr, HalvesOfEveryValueComeBackThroughAlpha) {
  for (std::uint32_t bits = 1; bits < 0x7C00; bits += 7) {
    for (const float alpha : {0.001F, 0.3333F, 0.5F, 0.999F, 2.0F}) {
      half value;
      value.setBits(static_cast<std::uint16_t>(bits));
      const auto rounded_alpha = static_cast<float>(half(alpha));
      float pixel[] = {static_cast<float>(value), 0.0F, 0.0F, rounded_alpha};
      make_straight(pixel, 1);
      float samples[4];
      make_premultiplied(pixel, 4, true, 1, samples);
      ASSERT_EQ(to_half(samples[0]).bits(), value.bits()) << bits << ' ' << alpha;
    }
  }
}

TEST(Exr, HalvesAreTheNearest) {
  EXPECT_EQ(to_half(1.0F + 1.0F / 4096), half(1.0F));  // a tie goes to the even one
  EXPECT_EQ(static_cast<float>(to_half(0.1F)), 0.0999755859375F);
  EXPECT_EQ(static_cast<float>(to_half(1e9F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(to_half(-65519.0F)), -65504.0F);
  EXPECT_TRUE(to_half(std::numeric_limits<float>::infinity()).isInfinity());
  EXPECT_TRUE(to_half(-std::numeric_limits<float>::infinity()).isInfinity());
  EXPECT_TRUE(to_half(std::numeric_limits<float>::quiet_NaN()).isNan());
}

TEST(Exr, WindowsAttributesAndCompressionStay) {
  const TempFolder folder;
  RawExr raw = make_exr(8, 4, {"R", "G", "B"});
  raw.header.dataWindow() = {{-3, 5}, {4, 8}};
  raw.header.displayWindow() = {{0, 0}, {99, 49}};
  raw.header.compression() = Imf::PIZ_COMPRESSION;
  raw.header.pixelAspectRatio() = 2;
  raw.header.insert("comments", Imf::StringAttribute("a blue hour"));
  const Imf::Chromaticities wide({0.7F, 0.3F}, {0.2F, 0.8F}, {0.1F, 0.1F}, {0.3F, 0.3F});
  Imf::addChromaticities(raw.header, wide);
  write_raw_exr(folder / "in.exr", raw);
  const Image image = read_exr(folder / "in.exr");
  write(folder / "out.exr", image, image.format);
  const RawExr out = read_raw_exr(folder / "out.exr");
  EXPECT_EQ(out.channels, raw.channels);
  EXPECT_EQ(out.header.dataWindow(), raw.header.dataWindow());
  EXPECT_EQ(out.header.displayWindow(), raw.header.displayWindow());
  EXPECT_EQ(out.header.compression(), Imf::PIZ_COMPRESSION);
  EXPECT_EQ(out.header.pixelAspectRatio(), 2);
  EXPECT_EQ(out.header.typedAttribute<Imf::StringAttribute>("comments").value(), "a blue hour");
  EXPECT_EQ(Imf::chromaticities(out.header).red, wide.red);
}

TEST(Exr, ALossyCompressionIsNotAppliedAgain) {
  const TempFolder folder;
  RawExr raw = make_exr(40, 40, {"R", "G", "B"});
  raw.header.compression() = Imf::DWAA_COMPRESSION;
  write_raw_exr(folder / "in.exr", raw);
  const Image image = read_exr(folder / "in.exr");
  write(folder / "out.exr", image, image.format);
  EXPECT_EQ(read_raw_exr(folder / "out.exr").header.compression(), Imf::ZIP_COMPRESSION);
  EXPECT_EQ(read_raw_exr(folder / "out.exr").channels, read_raw_exr(folder / "in.exr").channels);
}

TEST(Exr, HalvesAreKeptWhereAlphaChangesNoColour) {
  const TempFolder folder;
  RawExr raw = make_exr(7, 5, {"R", "G", "B", "A"});
  for (std::size_t i = 0; i < raw.channels["A"].size(); ++i) {
    raw.channels["A"][i] = static_cast<float>(i % 3 == 0);
  }
  write_raw_exr(folder / "in.exr", raw);
  Image kept = read_exr(folder / "in.exr", {}, true);
  EXPECT_EQ(kept.halves.size(), 7U * 5 * 4);
  EXPECT_TRUE(kept.pixels.empty());
  OutputFile file(folder / "out.exr");
  write_image_file(file, kept, kept.format, 1);
  file.commit();
  EXPECT_EQ(read_raw_exr(folder / "out.exr").channels, raw.channels);
  EXPECT_TRUE(kept.pixels.empty());
  make_floats(kept);
  EXPECT_EQ(kept.pixels, read_exr(folder / "in.exr").pixels);

  raw.channels["A"][4] = 0.5F;
  write_raw_exr(folder / "in.exr", raw);
  EXPECT_TRUE(read_exr(folder / "in.exr", {}, true).halves.empty());
}

TEST(Exr, APngShowsTheDisplayWindow) {
  RawExr raw = make_exr(3, 2, {"R", "G", "B", "A"});
  raw.header.dataWindow() = {{-1, 1}, {1, 2}};
  raw.header.displayWindow() = {{0, 0}, {3, 1}};
  for (auto& [name, values] : raw.channels) values = {0, 1, 0.5F, 0, 0, 0};
  raw.channels["A"] = {1, 1, 1, 1, 1, 1};
  const TempFolder folder;
  write_raw_exr(folder / "in.exr", raw);
  Image image = read_image_file(folder / "in.exr");
  OutputFile file(folder / "out.png");
  write_image_file(file, image, choose_image_format(image.format, "out.png", 8), 1);
  file.commit();
  const RawPng png = read_raw_png(folder / "out.png");
  EXPECT_EQ(png.width, 4U);
  EXPECT_EQ(png.height, 2U);
  std::vector<std::uint16_t> expected(32, 0);
  std::fill_n(expected.begin() + 16, 4, std::uint16_t{255});  // row 1: x 0 and 1 have pixels
  std::fill_n(expected.begin() + 20, 3, std::uint16_t{188});
  expected[23] = 255;
  EXPECT_EQ(png.samples, expected);

  raw.header.displayWindow() = {{10, 10}, {11, 10}};  // beside the pixels
  write_raw_exr(folder / "beside.exr", raw);
  const auto shown = show_display_window(read_exr(folder / "beside.exr"));
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->pixels, std::vector<float>(8, 0.0F));
}

TEST(Exr, OtherChannelsAndPartsAreNamed) {
  const TempFolder folder;
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  write_raw_exr(folder / "z.exr", make_exr(3, 3, {"R", "G", "B", "A", "Z", "diffuse.R"}));
  EXPECT_EQ(read_exr(folder / "z.exr", tell).format.channels, 4);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], testing::HasSubstr("Z, diffuse.R"));
  told.clear();
  RawExr second = make_exr(5, 4, {"R", "G", "B"});
  second.header.displayWindow() = {{0, 0}, {2, 2}};  // all parts share one
  write_raw_exr_parts(folder / "parts.exr", {make_exr(3, 3, {"Z"}), second});
  EXPECT_EQ(read_exr(folder / "parts.exr", tell).width, 5U);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], testing::HasSubstr("only part 2 of 2 is read, \"part2\""));
}

TEST(Exr, UnsupportedExrFileIsRefusedByName) {
  const TempFolder folder;
  const auto refuse = [&](const char* name, const char* part) {
    expect_failure([&] { read_exr(folder / name); }, ExitCode::input, part);
  };
  write_raw_exr(folder / "depth.exr", make_exr(3, 3, {"Z", "R"}));
  refuse("depth.exr", "its channels: R, Z");
  write_raw_exr(folder / "layer.exr", make_exr(3, 3, {"beauty.R", "beauty.G", "beauty.B"}));
  refuse("layer.exr", "beauty.B, beauty.G, beauty.R");
  write_raw_exr(folder / "chroma.exr", make_exr(4, 4, {"Y", "RY", "BY"}));
  refuse("chroma.exr", "chroma");
  write_raw_exr(folder / "whole.exr", make_exr(3, 3, {"R", "G", "B"}, Imf::UINT));
  refuse("whole.exr", "channel R has whole numbers");
  write_deep_exr(folder / "deep.exr");
  refuse("deep.exr", "deep pixels");
  write_unfinished_exr(folder / "part.exr", make_exr(40, 40, {"R", "G", "B"}), 20);
  refuse("part.exr", "did not finish it");
  refuse("missing.exr", "No such file");
}

TEST(Exr, EveryTruncationIsNoticed) {
  const TempFolder folder;
  for (const int tile : {0, 16}) {
    RawExr raw = make_exr(33, 41, {"R", "G", "B", "A"});
    if (tile != 0) raw.header.setTileDescription(Imf::TileDescription(16, 16));
    write_raw_exr(folder / "whole.exr", raw);
    const std::string bytes = read_bytes(folder / "whole.exr");
    for (std::size_t length = 4; length < bytes.size(); length += length < 500 ? 1 : 97) {
      write_bytes(folder / "cut.exr", bytes.substr(0, length));
      expect_failure([&] { read_exr(folder / "cut.exr"); }, ExitCode::input, "cut.exr");
    }
    write_bytes(folder / "cut.exr", bytes.substr(0, bytes.size() - 1));
    expect_failure([&] { read_exr(folder / "cut.exr"); }, ExitCode::input, "truncated");
  }
}

// Any file is an image or an error, and never a crash.
TEST(Exr, DamageEndsInAnImageOrAnError) {
  const TempFolder folder;
  for (const Imf::Compression compression :
       {Imf::NO_COMPRESSION, Imf::ZIP_COMPRESSION, Imf::PIZ_COMPRESSION, Imf::B44_COMPRESSION}) {
    RawExr raw = make_exr(20, 20, {"R", "G", "B", "A"});
    raw.header.compression() = compression;
    write_raw_exr(folder / "whole.exr", raw);
    const std::string whole = read_bytes(folder / "whole.exr");
    for (std::size_t at = 4; at < whole.size(); at += at < 500 ? 1 : 31) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0xFF);
      write_bytes(folder / "bad.exr", bytes);
      try {
        const Image image = read_exr(folder / "bad.exr");
        EXPECT_EQ(image.pixels.size(), std::size_t{4} * image.width * image.height);
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::input);
        EXPECT_THAT(failure.what(), testing::Not(testing::HasSubstr("\n")));
      }
    }
  }
}

TEST(Exr, HugeWindowsAndTilesAreRefusedBeforeMemoryIsTaken) {
  const TempFolder folder;
  write_raw_exr(folder / "in.exr", make_exr(1, 1, {"R", "G", "B"}));
  const std::string whole = read_bytes(folder / "in.exr");
  const auto with_window = [&](const std::string& name, int right, int bottom) {
    std::string bytes = whole;
    const std::size_t at =
        bytes.find(name) + name.size() + 1 + 6 + 4 + 8;  // "box2i", size, minimum
    const auto write_number = [&](std::size_t to, int number) {
      for (std::size_t i = 0; i < 4; ++i) bytes[to + i] = static_cast<char>(number >> (8 * i));
    };
    write_number(at, right);
    write_number(at + 4, bottom);
    write_bytes(folder / "huge.exr", bytes);
  };
  with_window("displayWindow", 99'999, 99'999);
  expect_failure([&] { read_exr(folder / "huge.exr"); }, ExitCode::input, "100000 x 100000");
  with_window("dataWindow", 268'435'456, 0);
  expect_failure([&] { read_exr(folder / "huge.exr"); }, ExitCode::input, "268435457 x 1");
  with_window("dataWindow", 99'999'999, 0);
  expect_failure([&] { read_exr(folder / "huge.exr"); }, ExitCode::input,
                 "100000000 x 1 pixels cannot be in");
  with_window("dataWindow", 0, 1'000'000'000);
  expect_failure([&] { read_exr(folder / "huge.exr"); }, ExitCode::input, "huge.exr");

  RawExr raw = make_exr(4, 4, {"R", "G", "B"});
  raw.header.setTileDescription(Imf::TileDescription(16, 100'000));
  write_raw_exr(folder / "tiles.exr", raw);
  expect_failure([&] { read_exr(folder / "tiles.exr"); }, ExitCode::input, "16 x 100000");
}

TEST(ImageFile, FormatsByExtensionAndDepth) {
  const ImageFormat png8{8, 3, ImageType::png};
  const ImageFormat png16{16, 4, ImageType::png};
  const ImageFormat half_exr{16, 1, ImageType::exr};
  const ImageFormat float_exr{32, 2, ImageType::exr};
  EXPECT_EQ(choose_image_format(png8, "a.PNG", 0), png8);
  EXPECT_EQ(choose_image_format(png8, "a.exr", 0), (ImageFormat{16, 3, ImageType::exr}));
  EXPECT_EQ(choose_image_format(png16, "a.exr", 0), (ImageFormat{32, 4, ImageType::exr}));
  EXPECT_EQ(choose_image_format(half_exr, "a.exr", 0), half_exr);
  EXPECT_EQ(choose_image_format(float_exr, "a.exr", 16), (ImageFormat{16, 2, ImageType::exr}));
  EXPECT_EQ(choose_image_format(float_exr, "a.png", 0), (ImageFormat{16, 2, ImageType::png}));
  const auto refuse = [&](const char* path, int depth, ExitCode code, const char* part) {
    expect_failure([&] { choose_image_format(png8, path, depth); }, code, part);
  };
  refuse("a.png", 32, ExitCode::usage, "a.png\": depth 32: samples of PNG files have 8 or 16 bits");
  refuse("a.exr", 8, ExitCode::usage,
         "a.exr\": depth 8: samples of OpenEXR files have 16 or 32 bits");
  refuse("a.tif", 0, ExitCode::output, ".png or .exr");
  refuse("a", 0, ExitCode::output, ".png or .exr");
}

TEST(ImageFile, PngsComeBackThroughOpenExr) {
  const TempFolder folder;
  for (const int depth : {8, 16}) {
    RawPng raw{50, 40, depth, 2, false, false, {}};
    fill_samples(raw, 3);
    write_raw_png(folder / "in.png", raw);
    const auto convert = [&](const char* from, const char* to, int output_depth) {
      Image image = read_image_file(folder / from);
      OutputFile file(folder / to);
      write_image_file(file, image, choose_image_format(image.format, to, output_depth), 1);
      file.commit();
    };
    convert("in.png", "between.exr", 0);
    EXPECT_EQ(read_raw_exr(folder / "between.exr").type, depth == 8 ? Imf::HALF : Imf::FLOAT);
    convert("between.exr", "out.png", depth);
    EXPECT_EQ(read_raw_png(folder / "out.png").samples, raw.samples) << depth;
  }
}

TEST(ImageFile, ContentDecidesTheTypeOfAnInput) {
  const TempFolder folder;
  write_raw_exr(folder / "a.png", make_exr(3, 2, {"R", "G", "B"}));
  EXPECT_EQ(read_image_file(folder / "a.png").format.type, ImageType::exr);
  write_bytes(folder / "text.exr", "no image");
  expect_failure([&] { read_image_file(folder / "text.exr"); }, ExitCode::input,
                 "is not a PNG or OpenEXR file");
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
