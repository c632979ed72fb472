#include <png.h>

#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <new>

#include "exit_code.hpp"
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
bool profile_fits(const PngMetadata::Profile& profile, const PngFormat& format) {
  if (profile.data.size() < 20) return false;
  const std::string space(profile.data.begin() + 16, profile.data.begin() + 20);
  return space == (format.channels >= 3 ? "RGB " : "GRAY");
}

bool write_header_guarded(Writer& writer, const PngImage& image, const PngFormat& format) {
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
  if (format.depth == 16 && std::endian::native == std::endian::little) png_set_swap(png);
  return true;
}

bool write_row_guarded(Writer& writer, png_const_bytep row) {
  if (setjmp(png_jmpbuf(writer.png)) != 0) return false;
  png_write_row(writer.png, row);
  return true;
}

bool write_end_guarded(Writer& writer) {
  if (setjmp(png_jmpbuf(writer.png)) != 0) return false;
  png_write_end(writer.png, writer.info);
  return true;
}

}  // namespace

std::string to_string(const PngFormat& format) {
  static constexpr std::array names{"grey", "grey and alpha", "RGB", "RGBA"};
  return std::string(names[static_cast<std::size_t>(format.channels - 1)]) + ", " +
         std::to_string(format.depth) + " bit";
}

void write_png(OutputFile& file, const PngImage& image, const PngFormat& format) {
  Writer writer;
  writer.file = &file;
  writer.png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, &writer, on_write_error, on_write_warning);
  if (writer.png != nullptr) writer.info = png_create_info_struct(writer.png);
  if (writer.info == nullptr) throw std::bad_alloc();

  const auto fail = [&]() -> Failure {
    const std::string why = file.error() != 0
                                ? "cannot be written: " + errno_text(file.error())
                                : "cannot be encoded: " + std::string(writer.error.data());
    return {ExitCode::output, "output file \"" + file.path().string() + "\": " + why};
  };
  if (!write_header_guarded(writer, image, format)) throw fail();
  const SrgbTables tables(format.depth);
  const std::size_t samples = std::size_t{image.width} * static_cast<std::size_t>(format.channels);
  std::vector<std::uint16_t> row(format.depth == 16 ? samples : (samples + 1) / 2);
  auto* bytes = reinterpret_cast<unsigned char*>(row.data());
  for (std::size_t y = 0; y < image.height; ++y) {
    encode_row(image.pixels.data() + y * image.width * 4, format, tables, image.width, bytes);
    if (!write_row_guarded(writer, bytes)) throw fail();
  }
  if (!write_end_guarded(writer)) throw fail();
}

}  // namespace ctxbroker::sample_host
