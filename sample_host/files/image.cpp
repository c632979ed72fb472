#include "files/image.hpp"

namespace ctxbroker::sample_host {

std::string to_string(const ImageFormat& format) {
  static constexpr std::array names{"grey", "grey and alpha", "RGB", "RGBA"};
  const bool exr = format.type == ImageType::exr;
  return (exr ? "OpenEXR, " : "PNG, ") +
         std::string(names[static_cast<std::size_t>(format.channels - 1)]) + ", " +
         std::to_string(format.depth) + (exr ? " bit float" : " bit");
}

float luminance(const float* pixel) {
  if (pixel[0] == pixel[1] && pixel[1] == pixel[2]) return pixel[0];
  return static_cast<float>(0.2126 * static_cast<double>(pixel[0]) +
                            0.7152 * static_cast<double>(pixel[1]) +
                            0.0722 * static_cast<double>(pixel[2]));
}

}  // namespace ctxbroker::sample_host
