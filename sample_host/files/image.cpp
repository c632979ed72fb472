// SPDX-License-Identifier: Apache-2.0
#include "files/image.hpp"

#include <half.h>

#include "files/parallel.hpp"

namespace ctxbroker::sample_host {

std::string to_string(const ImageFormat& format) {
  static constexpr std::array names{"grey", "grey and alpha", "RGB", "RGBA"};
  const bool exr = format.type == ImageType::exr;
  return (exr ? "OpenEXR, " : "PNG, ") +
         std::string(names[static_cast<std::size_t>(format.channels - 1)]) + ", " +
         std::to_string(format.depth) + (exr ? " bit float" : " bit");
}

void make_floats(Image& image) {
  if (image.halves.empty()) return;
  image.pixels.resize(image.halves.size());
  for_each_band(image.height, [&](std::size_t first, std::size_t end) {
    const std::size_t row = std::size_t{image.width} * 4;
    for (std::size_t i = first * row; i < end * row; ++i) {
      half value;
      value.setBits(image.halves[i]);
      image.pixels[i] = value;
    }
  });
  image.halves = {};
}

float luminance(const float* pixel) {
  if (pixel[0] == pixel[1] && pixel[1] == pixel[2]) return pixel[0];
  return static_cast<float>(0.2126 * static_cast<double>(pixel[0]) +
                            0.7152 * static_cast<double>(pixel[1]) +
                            0.0722 * static_cast<double>(pixel[2]));
}

}  // namespace ctxbroker::sample_host
