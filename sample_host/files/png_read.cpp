// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>

#include "files/input_file.hpp"
#include "files/parallel.hpp"
#include "files/png_file.hpp"
#include "files/png_samples.hpp"
#include "files/start.hpp"

// libpng reports errors by longjmp, which must not leave a frame that holds C++ objects. So every
// call that can fail stands in a `*_guarded` function with plain locals only; what they fill lives
// in Reader, outside of the jump.

namespace ctxbroker::sample_host {

namespace {

struct FileCloser {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

struct Reader {
  std::unique_ptr<std::FILE, FileCloser> file;
  const std::function<void(const std::string&)>* warning = nullptr;
  bool at_end = false;
  std::uint64_t rows_left = 0;   // of all passes
  std::uint64_t surplus = 0;     // compressed bytes that were read behind the last row
  bool surplus_is_left = false;  // there are too many of them
  std::array<char, 200> error{};
  png_structp png = nullptr;
  png_infop info = nullptr;
  png_uint_32 width = 0, height = 0;
  int depth = 0, channels = 0;
  std::size_t row_bytes = 0;

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

extern "C" void on_read_error(png_structp png, png_const_charp text) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(reader->error.data(), reader->error.size(), "%s", text);
  png_longjmp(png, 1);
}

extern "C" void on_read_warning(png_structp png, png_const_charp text) {
  const auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  if (*reader->warning) (*reader->warning)(text);
}

// libpng unpacks the compressed data to its end, and a byte of it can become 1,000. Behind the last
// row, an encoder leaves a few bytes.
constexpr std::uint64_t most_surplus = 64 << 10;

bool is_beyond_the_picture(Reader& reader, std::size_t bytes) {
  constexpr png_uint_32 image_data = 0x49444154;  // "IDAT"
  const bool is_data = png_get_io_chunk_type(reader.png) == image_data &&
                       (png_get_io_state(reader.png) & PNG_IO_MASK_LOC) == PNG_IO_CHUNK_DATA;
  if (reader.rows_left != 0 || !is_data) return false;
  reader.surplus += bytes;
  return reader.surplus > most_surplus;
}

extern "C" void on_read_data(png_structp png, png_bytep data, std::size_t bytes) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (is_beyond_the_picture(*reader, bytes)) {
    reader->surplus_is_left = true;
    png_error(png, "data behind the picture");
  }
  if (std::fread(data, 1, bytes, reader->file.get()) == bytes) return;
  reader->at_end = std::ferror(reader->file.get()) == 0;
  png_error(png, reader->at_end ? "truncated" : "the system cannot read it");
}

// Counts the rows: libpng unpacks what follows the last one before it returns.
extern "C" void on_row(png_structp png, png_row_infop /*row*/, png_bytep /*bytes*/) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (reader->rows_left != 0) --reader->rows_left;
}

std::uint64_t stored_rows(std::uint32_t width, std::uint32_t height, bool interlaced) {
  if (!interlaced) return height;
  std::uint64_t rows = 0;
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    if (PNG_PASS_COLS(width, pass) != 0) rows += PNG_PASS_ROWS(height, pass);
  }
  return rows;
}

// Ignores the texts and suggested palettes. libpng would unpack up to 8 MB of each.
void ignore_unused_chunks(png_structp png) {
  constexpr png_byte names[] = "tEXt\0zTXt\0iTXt\0sPLT";
  constexpr int bytes_of_name = 5, count = sizeof names / bytes_of_name;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, count);
}

// Reads up to the first row and asks for 8 or 16 bits in 1 to 4 channels.
bool read_header_guarded(Reader& reader) {
  png_structp png = reader.png;
  png_infop info = reader.info;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, &reader, on_read_data);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  ignore_unused_chunks(png);
  png_read_info(png, info);
  int colour_type = 0, interlace = 0;
  png_get_IHDR(png, info, &reader.width, &reader.height, &reader.depth, &colour_type, &interlace,
               nullptr, nullptr);
  reader.rows_left = stored_rows(reader.width, reader.height, interlace != PNG_INTERLACE_NONE);
  png_set_read_user_transform_fn(png, on_row);
  if (colour_type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (colour_type == PNG_COLOR_TYPE_GRAY && reader.depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (png_get_valid(png, info, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png);
  png_set_interlace_handling(png);
  return true;
}

bool start_rows_guarded(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_update_info(reader.png, reader.info);
  reader.depth = png_get_bit_depth(reader.png, reader.info);
  reader.channels = png_get_channels(reader.png, reader.info);
  reader.row_bytes = png_get_rowbytes(reader.png, reader.info);
  return true;
}

// The end is read too: a file cut behind its pixels is truncated all the same.
bool read_rows_guarded(Reader& reader, png_bytepp rows) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, rows);
  png_read_end(reader.png, reader.info);
  return true;
}

// Looks for the last chunk from the first one on, without reading what the chunks hold.
bool has_last_chunk(std::FILE* file) {
  constexpr off_t signature_bytes = 8, checksum_bytes = 4;
  if (::fseeko(file, signature_bytes, SEEK_SET) != 0) return false;
  std::array<unsigned char, 8> head{};
  while (std::fread(head.data(), 1, head.size(), file) == head.size()) {
    if (std::equal(head.begin() + 4, head.end(), "IEND")) return true;
    const off_t bytes = png_get_uint_32(head.data());
    if (::fseeko(file, bytes + checksum_bytes, SEEK_CUR) != 0) return false;
  }
  return false;
}

PngMetadata read_metadata(const Reader& reader) {
  PngMetadata metadata;
  png_const_structp png = reader.png;
  png_infop info = reader.info;
  int number = 0;
  if (png_get_sRGB(png, info, &number) != 0) metadata.srgb_intent = number;
  double gamma = 0;
  if (png_get_gAMA(png, info, &gamma) != 0) metadata.gamma = gamma;
  std::array<double, 8> c{};
  if (png_get_cHRM(png, info, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7]) != 0) {
    metadata.chromaticities = c;
  }
  png_charp name = nullptr;
  png_bytep bytes = nullptr;
  png_uint_32 size = 0;
  if (png_get_iCCP(png, info, &name, &number, &bytes, &size) != 0) {
    metadata.icc_profile = PngMetadata::Profile{name, {bytes, bytes + size}};
  }
  PngMetadata::Resolution resolution;
  if (png_get_pHYs(png, info, &resolution.x, &resolution.y, &resolution.unit) != 0) {
    metadata.resolution = resolution;
  }
  if (png_get_eXIf_1(png, info, &size, &bytes) != 0) metadata.exif.assign(bytes, bytes + size);
  return metadata;
}

Failure read_failure(const std::filesystem::path& path, const Reader& reader) {
  if (reader.at_end) {
    return input_failure(path, "is truncated: the PNG ends before its last chunk; copy it again");
  }
  return input_failure(path, "is damaged: " + std::string(reader.error.data()) +
                                 "; copy it again, or save it anew from an image editor");
}

// A byte of compressed data holds at most 1,032: 258 in each 2 bits. Refuses what cannot be there
// before memory is taken for it.
void check_file_size(const std::filesystem::path& path, std::uint64_t file_size,
                     const Reader& reader) {
  constexpr std::uint64_t most_bits_per_byte = std::uint64_t{1032} * 8;
  const std::uint64_t pixel_bits = std::uint64_t{png_get_bit_depth(reader.png, reader.info)} *
                                   png_get_channels(reader.png, reader.info);
  const std::uint64_t bits = std::uint64_t{reader.width} * reader.height * pixel_bits;
  if (bits / most_bits_per_byte <= file_size) return;
  throw input_failure(path, "is truncated or damaged: " + std::to_string(reader.width) + " x " +
                                std::to_string(reader.height) + " pixels cannot be in " +
                                std::to_string(file_size) + " bytes; copy it again");
}

void check_signature(const std::filesystem::path& path, std::FILE* file) {
  std::array<unsigned char, 8> start{};
  const std::size_t got = std::fread(start.data(), 1, start.size(), file);
  if (got == 0 || png_sig_cmp(start.data(), 0, got) != 0) {
    throw input_failure(path, "is not a PNG or OpenEXR file; convert it to one of them first");
  }
  std::rewind(file);
}

}  // namespace

Image read_png(const std::filesystem::path& path,
               const std::function<void(const std::string&)>& warning) {
  const std::uint64_t file_size = check_input_file(path);
  Reader reader;
  reader.warning = &warning;
  reader.file.reset(std::fopen(from_start(path).c_str(), "rbe"));
  if (!reader.file) throw open_failure(path, errno);
  check_signature(path, reader.file.get());
  reader.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_read_error, on_read_warning);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();

  if (!read_header_guarded(reader)) throw read_failure(path, reader);
  if (std::uint64_t{reader.width} * reader.height > image_max_pixels) {
    throw input_failure(path, "is too large: " + std::to_string(reader.width) + " x " +
                                  std::to_string(reader.height) + " pixels, at most " +
                                  std::to_string(image_max_pixels) +
                                  " in all are read; scale it down first");
  }
  check_file_size(path, file_size, reader);
  if (!start_rows_guarded(reader)) throw read_failure(path, reader);

  std::vector<unsigned char> raw(reader.row_bytes * reader.height);
  std::vector<png_bytep> rows(reader.height);
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = raw.data() + y * reader.row_bytes;
  if (!read_rows_guarded(reader, rows.data())) {
    reader.at_end = reader.at_end || (reader.surplus_is_left && !has_last_chunk(reader.file.get()));
    if (!reader.surplus_is_left || reader.at_end) throw read_failure(path, reader);
    if (warning) warning("there is data behind the picture, which is left out");
  }

  Image image;
  image.width = reader.width;
  image.height = reader.height;
  image.format = {reader.depth, reader.channels, ImageType::png};
  image.metadata = read_metadata(reader);
  image.pixels.resize(std::size_t{reader.width} * reader.height * 4);
  for_each_band(image.height, [&](std::size_t first, std::size_t end) {
    for (std::size_t y = first; y < end; ++y) {
      decode_row(rows[y], image.format, image.width, image.pixels.data() + y * image.width * 4);
    }
  });
  return image;
}

}  // namespace ctxbroker::sample_host
