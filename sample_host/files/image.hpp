// SPDX-License-Identifier: Apache-2.0
// Images as linear float RGBA with straight alpha, which is what image plug-ins work on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxbroker::sample_host {

enum class ImageType { png, exr };

// How a file stores samples.
struct ImageFormat {
  int depth = 8;     // bits per sample. PNG: 8 or 16. OpenEXR: 16 (half) or 32 (float)
  int channels = 4;  // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
  ImageType type = ImageType::png;

  friend bool operator==(const ImageFormat&, const ImageFormat&) = default;
};

std::string to_string(const ImageFormat& format);  // "PNG, RGBA, 16 bit"

// Chunks of a PNG that say how the samples are meant; copied as they are.
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

struct ExrHeader;  // of an OpenEXR file; see exr_header.hpp

struct Image {
  std::uint32_t width = 0, height = 0;
  std::vector<float> pixels;  // width * height * 4, linear, straight alpha, rows from the top
  std::vector<std::uint16_t> halves;  // the same as halves; then there are no `pixels`
  ImageFormat format;                 // of the file
  PngMetadata metadata;
  std::shared_ptr<const ExrHeader> exr;  // null: the file was no OpenEXR file
};

// Most pixels that are read: 4 GiB as floats.
inline constexpr std::uint64_t image_max_pixels = std::uint64_t{1} << 28;

// Moves what is in `halves` to `pixels`, where it stays exactly the same.
void make_floats(Image& image);

// Rec. 709. Equal components stay exactly what they are, so that grey files come back unchanged.
float luminance(const float* pixel);

}  // namespace ctxbroker::sample_host
