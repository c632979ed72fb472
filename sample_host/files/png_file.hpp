// PNG files as linear float RGBA with straight alpha, which is what image plug-ins work on.
//
// Samples are taken as sRGB whatever colour chunks the file has; those chunks (and resolution and
// Exif) are carried over to the output, so that it is shown with the same colours as the input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

// How samples are stored. Palettes are read as RGB (RGBA with transparency), grey of 1, 2 and 4
// bits as 8 bits, a transparent colour (tRNS) as an alpha channel.
struct PngFormat {
  int depth = 8;     // bits per sample: 8 or 16
  int channels = 4;  // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA

  friend bool operator==(const PngFormat&, const PngFormat&) = default;
};

std::string to_string(const PngFormat& format);  // "RGBA, 16 bit"

// Chunks that say how the samples are meant; copied as they are.
struct PngMetadata {
  struct Profile {
    std::string name;
    std::vector<unsigned char> data;
  };
  struct Resolution {
    std::uint32_t x = 0, y = 0;  // pixels per unit
    int unit = 0;                // 0: only their ratio counts, 1: metre
  };
  std::optional<int> srgb_intent;
  std::optional<double> gamma;
  std::optional<std::array<double, 8>> chromaticities;  // white, red, green, blue: x and y
  std::optional<Profile> icc_profile;
  std::optional<Resolution> resolution;
  std::vector<unsigned char> exif;
};

struct PngImage {
  std::uint32_t width = 0, height = 0;
  std::vector<float> pixels;  // width * height * 4, linear, straight alpha, rows from the top
  PngFormat format;           // of the file
  PngMetadata metadata;
};

// Most pixels that are read: 4 GiB as floats.
inline constexpr std::uint64_t png_max_pixels = std::uint64_t{1} << 28;

// Reads the whole file, its end included. Throws Failure (input): see check_input_file; no PNG;
// damaged or truncated; too large. `warning` is told of oddities that harm nothing; may be empty.
PngImage read_png(const std::filesystem::path& path,
                  const std::function<void(const std::string&)>& warning = {});

// Encodes `image` as `format` says, each sample rounded to the nearest code. Grey is the luminance
// (Rec. 709) where red, green and blue differ; alpha is dropped where the format has none. Does
// not commit. Throws Failure (output). `compression`: 0 stores the samples, 1 is the fastest that
// compresses, 9 makes the smallest file.
void write_png(OutputFile& file, const PngImage& image, const PngFormat& format,
               int compression = 1);

}  // namespace ctxbroker::sample_host
