// SPDX-License-Identifier: Apache-2.0
#include "files/png_compress.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>

#include "files/png_file.hpp"
#include "fixtures/png_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

// All bands of `rows`, one stream.
std::vector<unsigned char> compress_all(const PngRows& rows, int level) {
  std::vector<unsigned char> data;
  uLong adler = 1;
  for (std::size_t first = 0; first < rows.count; first += png_band_rows(rows)) {
    const PngBand band = compress_png_band(rows, first, level);
    data.insert(data.end(), band.data.begin(), band.data.end());
    adler = adler32_combine(adler, band.adler, static_cast<z_off_t>(band.bytes));
  }
  const auto end = png_checksum(static_cast<std::uint32_t>(adler));
  data.insert(data.end(), end.begin(), end.end());
  return data;
}

PngRows smooth_rows(std::size_t count, std::size_t width) {
  PngRows rows;
  rows.count = count;
  rows.pixel_bytes = 3;
  rows.row_bytes = 3 * width;
  rows.make = [bytes = rows.row_bytes](std::size_t row, unsigned char* to) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(i / 7 + row / 5);
  };
  return rows;
}

// zlib checks the checksum of the whole, which libpng only warns of.
TEST(PngCompress, BandsMakeOneStream) {
  for (const std::size_t count : {1U, 3U, 2000U}) {
    const PngRows rows = smooth_rows(count, 400);
    for (int level = 0; level <= 9; ++level) {
      const auto data = compress_all(rows, level);
      std::vector<unsigned char> filtered(count * (rows.row_bytes + 1));
      uLongf size = filtered.size();
      ASSERT_EQ(uncompress(filtered.data(), &size, data.data(), data.size()), Z_OK) << level;
      EXPECT_EQ(size, filtered.size());
      EXPECT_LT(data.size(), level > 0 ? 300 + filtered.size() / 20 : filtered.size() + 10'000);
    }
  }
  EXPECT_LT(png_band_rows(smooth_rows(2000, 400)), 2000U);  // or it would not test several bands
}

TEST(PngCompress, EveryFilterIsUsedAndUndone) {
  // Regions that each suit another filter, 16 bits with alpha: 8 bytes a pixel.
  RawPng raw{64, 120, 16, 6, false, false, {}};
  std::mt19937 random(7);
  for (std::uint32_t y = 0; y < raw.height; ++y) {
    for (std::uint32_t x = 0; x < raw.width; ++x) {
      for (std::uint32_t c = 0; c < 4; ++c) {
        const auto any = static_cast<std::uint32_t>(random());
        const std::uint32_t noise = any % 64;
        const std::uint32_t values[] = {any, y * 9000 + noise, x * 9000 + noise,
                                        (x + y) * 700 + noise, x * y * 20 + c * 9999};
        raw.samples.push_back(static_cast<std::uint16_t>(values[y / 24]));
      }
    }
  }
  const TempFolder folder;
  write_raw_png(folder / "in.png", raw);
  const Image image = read_png(folder / "in.png");
  for (int level = 0; level <= 9; ++level) {
    OutputFile file(folder / "out.png");
    write_png(file, image, image.format, level);
    file.commit();
    ASSERT_EQ(read_raw_png(folder / "out.png").samples, raw.samples) << level;
    read_png(folder / "out.png", [](const std::string& text) { ADD_FAILURE() << text; });
  }

  PngRows rows;
  rows.count = raw.height;
  rows.pixel_bytes = 8;
  rows.row_bytes = 8 * std::size_t{raw.width};
  rows.make = [&](std::size_t row, unsigned char* to) {
    for (std::size_t i = 0; i < rows.row_bytes / 2; ++i) {
      const std::uint16_t sample = raw.samples[row * rows.row_bytes / 2 + i];
      to[2 * i] = static_cast<unsigned char>(sample >> 8);
      to[2 * i + 1] = static_cast<unsigned char>(sample);
    }
  };
  const auto data = compress_all(rows, 1);
  std::vector<unsigned char> filtered(rows.count * (rows.row_bytes + 1));
  uLongf size = filtered.size();
  ASSERT_EQ(uncompress(filtered.data(), &size, data.data(), data.size()), Z_OK);
  std::vector<int> used(5);
  for (std::size_t y = 0; y < rows.count; ++y) ++used.at(filtered[y * (rows.row_bytes + 1)]);
  EXPECT_GT(*std::min_element(used.begin(), used.end()), 0);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
