#include "files/png_samples.hpp"

#include <cmath>

namespace ctxbroker::sample_host {

namespace {

template <typename Sample>
void decode(const Sample* raw, int channels, const SrgbTables& tables, std::uint32_t width,
            float* pixels) {
  constexpr double top = static_cast<double>(static_cast<Sample>(-1));
  const bool colour = channels >= 3;
  const bool alpha = channels == 2 || channels == 4;
  for (std::uint32_t x = 0; x < width; ++x, raw += channels, pixels += 4) {
    pixels[0] = tables.decode(raw[0]);
    pixels[1] = colour ? tables.decode(raw[1]) : pixels[0];
    pixels[2] = colour ? tables.decode(raw[2]) : pixels[0];
    pixels[3] = alpha ? static_cast<float>(raw[channels - 1] / top) : 1.0F;
  }
}

// Alpha is linear: nearest code, with 0 for what is not a number.
template <typename Sample>
Sample encode_alpha(float alpha) {
  constexpr double top = static_cast<double>(static_cast<Sample>(-1));
  if (!(alpha > 0.0F)) return 0;
  if (alpha >= 1.0F) return static_cast<Sample>(-1);
  return static_cast<Sample>(std::lround(static_cast<double>(alpha) * top));
}

// Equal components stay exactly what they are, so that grey files come back unchanged.
float luminance(const float* pixel) {
  if (pixel[0] == pixel[1] && pixel[1] == pixel[2]) return pixel[0];
  return static_cast<float>(0.2126 * static_cast<double>(pixel[0]) +
                            0.7152 * static_cast<double>(pixel[1]) +
                            0.0722 * static_cast<double>(pixel[2]));
}

template <typename Sample>
void encode(const float* pixels, int channels, const SrgbTables& tables, std::uint32_t width,
            Sample* raw) {
  const bool colour = channels >= 3;
  const bool alpha = channels == 2 || channels == 4;
  for (std::uint32_t x = 0; x < width; ++x, raw += channels, pixels += 4) {
    if (colour) {
      for (int c = 0; c < 3; ++c) raw[c] = static_cast<Sample>(tables.encode(pixels[c]));
    } else {
      raw[0] = static_cast<Sample>(tables.encode(luminance(pixels)));
    }
    if (alpha) raw[channels - 1] = encode_alpha<Sample>(pixels[3]);
  }
}

}  // namespace

void decode_row(const unsigned char* raw, const PngFormat& format, const SrgbTables& tables,
                std::uint32_t width, float* pixels) {
  if (format.depth == 16) {
    decode(reinterpret_cast<const std::uint16_t*>(raw), format.channels, tables, width, pixels);
  } else {
    decode(raw, format.channels, tables, width, pixels);
  }
}

void encode_row(const float* pixels, const PngFormat& format, const SrgbTables& tables,
                std::uint32_t width, unsigned char* raw) {
  if (format.depth == 16) {
    encode(pixels, format.channels, tables, width, reinterpret_cast<std::uint16_t*>(raw));
  } else {
    encode(pixels, format.channels, tables, width, raw);
  }
}

}  // namespace ctxbroker::sample_host
