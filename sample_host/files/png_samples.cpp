// SPDX-License-Identifier: Apache-2.0
#include "files/png_samples.hpp"

#include <cmath>
#include <cstddef>

namespace ctxbroker::sample_host {

namespace {

// A sample of 1 or 2 bytes, the high one first.
template <std::ptrdiff_t bytes>
std::uint16_t load(const unsigned char* from) {
  if constexpr (bytes == 1) return from[0];
  return static_cast<std::uint16_t>(from[0] << 8 | from[1]);
}

template <std::ptrdiff_t bytes>
void store(std::uint16_t sample, unsigned char* to) {
  if constexpr (bytes == 2) *to++ = static_cast<unsigned char>(sample >> 8);
  *to = static_cast<unsigned char>(sample);
}

template <std::ptrdiff_t bytes>
constexpr double top = bytes == 1 ? 255 : 65535;

template <std::ptrdiff_t bytes>
void decode(const unsigned char* raw, int channels, std::uint32_t width, float* pixels) {
  const SrgbTables& tables = srgb_tables(static_cast<int>(8 * bytes));
  const bool colour = channels >= 3;
  const bool alpha = channels == 2 || channels == 4;
  const std::ptrdiff_t pixel_bytes = channels * bytes;
  for (std::uint32_t x = 0; x < width; ++x, raw += pixel_bytes, pixels += 4) {
    pixels[0] = tables.decode(load<bytes>(raw));
    pixels[1] = colour ? tables.decode(load<bytes>(raw + bytes)) : pixels[0];
    pixels[2] = colour ? tables.decode(load<bytes>(raw + 2 * bytes)) : pixels[0];
    pixels[3] =
        alpha ? static_cast<float>(load<bytes>(raw + pixel_bytes - bytes) / top<bytes>) : 1.0F;
  }
}

// Alpha is linear: nearest code, with 0 for what is not a number.
template <std::ptrdiff_t bytes>
std::uint16_t encode_alpha(float alpha) {
  if (!(alpha > 0.0F)) return 0;
  if (alpha >= 1.0F) return static_cast<std::uint16_t>(top<bytes>);
  return static_cast<std::uint16_t>(std::lround(static_cast<double>(alpha) * top<bytes>));
}

template <std::ptrdiff_t bytes>
void encode(const float* pixels, int channels, std::uint32_t width, unsigned char* raw) {
  const SrgbTables& tables = srgb_tables(static_cast<int>(8 * bytes));
  const bool colour = channels >= 3;
  const bool alpha = channels == 2 || channels == 4;
  const std::ptrdiff_t pixel_bytes = channels * bytes;
  for (std::uint32_t x = 0; x < width; ++x, raw += pixel_bytes, pixels += 4) {
    if (colour) {
      for (std::ptrdiff_t c = 0; c < 3; ++c)
        store<bytes>(tables.encode(pixels[c]), raw + c * bytes);
    } else {
      store<bytes>(tables.encode(luminance(pixels)), raw);
    }
    if (alpha) store<bytes>(encode_alpha<bytes>(pixels[3]), raw + pixel_bytes - bytes);
  }
}

}  // namespace

void decode_row(const unsigned char* raw, const ImageFormat& format, std::uint32_t width,
                float* pixels) {
  const auto function = format.depth == 16 ? decode<2> : decode<1>;
  function(raw, format.channels, width, pixels);
}

void encode_row(const float* pixels, const ImageFormat& format, std::uint32_t width,
                unsigned char* raw) {
  const auto function = format.depth == 16 ? encode<2> : encode<1>;
  function(pixels, format.channels, width, raw);
}

}  // namespace ctxbroker::sample_host
