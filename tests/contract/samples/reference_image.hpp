// SPDX-License-Identifier: Apache-2.0
// What the image samples compute, written down as plainly as possible, in double.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxbroker::reference {

// RGBA, linear light, straight alpha; pixel (x, y), component c is at (y * width + x) * 4 + c.
struct Image {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<double> values;

  Image(std::uint32_t columns, std::uint32_t rows)
      : width(columns), height(rows), values(std::size_t{4} * columns * rows) {}

  double& at(std::uint32_t x, std::uint32_t y, std::size_t c) {
    return values[(std::size_t{y} * width + x) * 4 + c];
  }
  double at(std::uint32_t x, std::uint32_t y, std::size_t c) const {
    return values[(std::size_t{y} * width + x) * 4 + c];
  }
};

// rgb = pow(rgb * 2^stops, 1 / gamma), where light below 0 keeps its sign
Image exposure(const Image& in, double stops, double gamma);

// rgb = matrix * rgb + offset, the matrix row by row
Image colour_matrix(const Image& in, const std::array<double, 9>& matrix,
                    const std::array<double, 3>& offset);

struct Fade {
  double centre_x = 0.5, centre_y = 0.5;  // of width and height
  double radius = 0.5, softness = 0.5;    // in halves of the diagonal
  std::array<double, 4> colour{0, 0, 0, 1};
};

// rgb goes to the colour with the distance of the pixel's middle from the centre: not at all up to
// the radius, by the colour's alpha from radius + softness on, and in a smooth step in between.
Image vignette(const Image& in, const Fade& fade);

// Gaussian with a standard deviation of radius / 3, cut off at ceil(radius); edges repeat the last
// pixel; colours count by their alpha; where all around is invisible the colour stays.
Image blur(const Image& in, double radius);

// rgb + amount * (what of rgb - blur(rgb) is beyond the threshold)
Image unsharp(const Image& in, double radius, double amount, double threshold);

struct Grade {
  double lift = 0, gamma = 1;
  std::array<double, 3> gain{1, 1, 1};
  double saturation = 1;
  double hue = 0;  // degrees
};

// Gain, saturation about the luminance, hue as a turn about the grey axis; then
// rgb = pow(rgb + lift * (1 - rgb), 1 / gamma), where light below 0 keeps its sign
Image colour_grading(const Image& in, const Grade& grade);

// Brightness is sqrt(min(luminance, 1)); each pixel that is not wholly transparent is given, in
// part or all, the share of such pixels that are darker, those of its own level counted half; its
// light changes by no more than 2^limit.
Image histogram_equalisation(const Image& in, double amount, std::size_t levels, double limit);

}  // namespace ctxbroker::reference
