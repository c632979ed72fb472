// SPDX-License-Identifier: Apache-2.0
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <new>

#include "exit_code.hpp"
#include "files/parallel.hpp"
#include "files/png_compress.hpp"
#include "files/png_file.hpp"
#include "files/png_samples.hpp"

// As in png_read.cpp: libpng's longjmp crosses only frames with plain locals.

namespace ctxbroker::sample_host {

namespace {

struct Writer {
  OutputFile* file = nullptr;
  std::array<char, 200> error{};
  png_structp png = nullptr;
  png_infop info = nullptr;

  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { png_destroy_write_struct(&png, &info); }
};

extern "C" void on_write_error(png_structp png, png_const_charp text) {
  auto* writer = static_cast<Writer*>(png_get_error_ptr(png));
  std::snprintf(writer->error.data(), writer->error.size(), "%s", text);
  png_longjmp(png, 1);
}

// Warnings while writing are about carried-over chunks that libpng then leaves out.
extern "C" void on_write_warning(png_structp, png_const_charp) {}

extern "C" void on_write_data(png_structp png, png_bytep data, std::size_t bytes) {
  auto* writer = static_cast<Writer*>(png_get_io_ptr(png));
  if (!writer->file->write(data, bytes)) png_error(png, "write failed");
}

extern "C" void on_flush(png_structp) {}

constexpr std::array colour_types{PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                  PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};

// A profile says whether it is for grey or colour; one that does not fit is left out.
bool profile_fits(const PngMetadata::Profile& profile, const ImageFormat& format) {
  if (profile.data.size() < 20) return false;
  const std::string space(profile.data.begin() + 16, profile.data.begin() + 20);
  return space == (format.channels >= 3 ? "RGB " : "GRAY");
}

bool write_header_guarded(Writer& writer, const Image& image, const ImageFormat& format) {
  png_structp png = writer.png;
  png_infop info = writer.info;
  const PngMetadata& metadata = image.metadata;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_write_fn(png, &writer, on_write_data, on_flush);
  png_set_benign_errors(png, 1);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_set_IHDR(png, info, image.width, image.height, format.depth,
               colour_types[static_cast<std::size_t>(format.channels - 1)], PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (metadata.icc_profile && profile_fits(*metadata.icc_profile, format)) {
    png_set_iCCP(png, info, metadata.icc_profile->name.c_str(), PNG_COMPRESSION_TYPE_BASE,
                 metadata.icc_profile->data.data(),
                 static_cast<png_uint_32>(metadata.icc_profile->data.size()));
  } else if (metadata.srgb_intent) {
    png_set_sRGB(png, info, *metadata.srgb_intent);
  }
  if (metadata.gamma) png_set_gAMA(png, info, *metadata.gamma);
  if (metadata.chromaticities) {
    const double* c = metadata.chromaticities->data();
    png_set_cHRM(png, info, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]);
  }
  if (metadata.resolution) {
    png_set_pHYs(png, info, metadata.resolution->x, metadata.resolution->y,
                 metadata.resolution->unit);
  }
  if (!metadata.exif.empty()) {
    // libpng copies the bytes; its signature merely lacks a const.
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(metadata.exif.size()),
                   const_cast<png_bytep>(metadata.exif.data()));
  }
  png_write_info(png, info);
  return true;
}

bool write_chunk_guarded(Writer& writer, const char* name, const png_byte* data,
                         std::size_t bytes) {
  if (setjmp(png_jmpbuf(writer.png)) != 0) return false;
  png_write_chunk(writer.png, reinterpret_cast<png_const_bytep>(name), data, bytes);
  return true;
}

// A chunk's length has 31 bits.
bool write_pixel_data(Writer& writer, const std::vector<unsigned char>& data) {
  constexpr std::size_t longest = std::size_t{1} << 30;
  for (std::size_t at = 0; at < data.size(); at += longest) {
    const std::size_t bytes = std::min(longest, data.size() - at);
    if (!write_chunk_guarded(writer, "IDAT", data.data() + at, bytes)) return false;
  }
  return true;
}

// Some bands at a time, so that no more than these are in memory, are made on all cores and
// written in order.
bool write_pixels(Writer& writer, const PngRows& rows, int level) {
  constexpr std::size_t bands_at_once = 64;
  const std::size_t band_rows = png_band_rows(rows);
  const std::size_t bands = (rows.count + band_rows - 1) / band_rows;
  uLong adler = 1;
  for (std::size_t first = 0; first < bands; first += bands_at_once) {
    std::vector<PngBand> made(std::min(bands_at_once, bands - first));
    for_each_part(made.size(), [&](std::size_t i) {
      made[i] = compress_png_band(rows, (first + i) * band_rows, level);
    });
    for (const PngBand& band : made) {
      if (!write_pixel_data(writer, band.data)) return false;
      adler = adler32_combine(adler, band.adler, static_cast<z_off_t>(band.bytes));
    }
  }
  return write_pixel_data(writer, png_checksum(static_cast<std::uint32_t>(adler)));
}

}  // namespace

void write_png(OutputFile& file, const Image& image, const ImageFormat& format, int compression) {
  Writer writer;
  writer.file = &file;
  writer.png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, &writer, on_write_error, on_write_warning);
  if (writer.png != nullptr) writer.info = png_create_info_struct(writer.png);
  if (writer.info == nullptr) throw std::bad_alloc();

  const auto fail = [&] {
    file.check();
    return output_failure(file.path(), "cannot be encoded: " + std::string(writer.error.data()));
  };
  if (!write_header_guarded(writer, image, format)) throw fail();
  PngRows rows;
  rows.count = image.height;
  rows.pixel_bytes = static_cast<std::size_t>(format.channels * format.depth / 8);
  rows.row_bytes = image.width * rows.pixel_bytes;
  rows.make = [&](std::size_t row, unsigned char* bytes) {
    encode_row(image.pixels.data() + row * image.width * 4, format, image.width, bytes);
  };
  if (!write_pixels(writer, rows, compression)) throw fail();
  if (!write_chunk_guarded(writer, "IEND", nullptr, 0)) throw fail();
}

}  // namespace ctxbroker::sample_host
