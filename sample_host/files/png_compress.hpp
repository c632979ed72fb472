// SPDX-License-Identifier: Apache-2.0
// Rows of samples as a PNG's compressed data, in bands that several threads make at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ctxbroker::sample_host {

// What one band of rows became.
struct PngBand {
  std::vector<unsigned char> data;  // goes into IDAT chunks, one band's behind the other's
  std::uint32_t adler = 1;          // checksum of the filtered rows
  std::size_t bytes = 0;            // of these
};

// The rows of an image in PNG's order of bytes.
struct PngRows {
  std::size_t count = 0;
  std::size_t row_bytes = 0;
  std::size_t pixel_bytes = 0;
  std::function<void(std::size_t row, unsigned char* bytes)> make;  // any thread
};

// Rows of each band but the last. It depends on the image alone, so that every machine writes the
// same file.
std::size_t png_band_rows(const PngRows& rows);

// Filters and compresses the band that begins at row `first`. Any thread. `level`: 0 stores, 1
// looks only for repeated bytes, which filtered photographs have and little else; 2 to 9 are
// zlib's.
PngBand compress_png_band(const PngRows& rows, std::size_t first, int level);

// What ends the compressed data: the checksum of all bands.
std::vector<unsigned char> png_checksum(std::uint32_t adler);

}  // namespace ctxbroker::sample_host
