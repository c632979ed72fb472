// SPDX-License-Identifier: Apache-2.0
#include "files/image_file.hpp"

#include <algorithm>
#include <fstream>

#include "files/exr_file.hpp"
#include "files/exr_samples.hpp"
#include "files/input_file.hpp"
#include "files/png_file.hpp"
#include "files/start.hpp"

namespace ctxbroker::sample_host {

namespace {

bool begins_as_exr(const std::filesystem::path& path) {
  constexpr std::array<char, 4> magic{0x76, 0x2f, 0x31, 0x01};
  std::array<char, 4> start{};
  std::ifstream file(from_start(path), std::ios::binary);
  return file.read(start.data(), start.size()) && start == magic;
}

struct TypeRow {
  const char* extension;
  const char* name;
  ImageType type;
  std::array<int, 2> depths;
};

constexpr std::array types{TypeRow{".png", "PNG", ImageType::png, {8, 16}},
                           TypeRow{".exr", "OpenEXR", ImageType::exr, {16, 32}}};

const TypeRow& type_of_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const TypeRow& row : types) {
    if (extension == row.extension) return row;
  }
  throw output_failure(path,
                       "images are written as PNG or OpenEXR; end its name with .png or .exr");
}

// 8 bits of sRGB are exact in halves, 16 bits only in floats.
int default_depth(const ImageFormat& input, ImageType output) {
  if (input.type == output) return input.depth;
  return output == ImageType::png ? 16 : 2 * input.depth;
}

}  // namespace

Image read_image_file(const std::filesystem::path& path, const ImageNotice& notice,
                      bool keep_halves) {
  check_input_file(path);
  const auto tell = [&](Severity severity) {
    return [&notice, severity](const std::string& text) {
      if (notice) notice(severity, text);
    };
  };
  return begins_as_exr(path) ? read_exr(path, tell(Severity::warning), keep_halves)
                             : read_png(path, tell(Severity::info));
}

ImageFormat choose_image_format(const ImageFormat& input, const std::filesystem::path& path,
                                int depth) {
  const TypeRow& row = type_of_extension(path);
  ImageFormat format = input;
  format.type = row.type;
  format.depth = depth != 0 ? depth : default_depth(input, row.type);
  if (format.depth == row.depths[0] || format.depth == row.depths[1]) return format;
  throw Failure(ExitCode::usage, "output file \"" + path.string() + "\": depth " +
                                     std::to_string(depth) + ": samples of " + row.name +
                                     " files have " + std::to_string(row.depths[0]) + " or " +
                                     std::to_string(row.depths[1]) +
                                     " bits; give one of these, or another type of output");
}

void write_image_file(OutputFile& file, Image& image, const ImageFormat& format,
                      int png_compression) {
  const bool as_it_is = format.type == ImageType::exr && format.depth == 16 &&
                        (format.channels == 3 || is_straight_anyway(image.halves));
  if (!as_it_is) make_floats(image);
  if (format.type == ImageType::exr) {
    write_exr(file, image, format);
  } else if (const std::optional<Image> shown = show_display_window(image)) {
    write_png(file, *shown, format, png_compression);
  } else {
    write_png(file, image, format, png_compression);
  }
}

}  // namespace ctxbroker::sample_host
