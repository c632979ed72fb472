// SPDX-License-Identifier: Apache-2.0
#include "reference_image.hpp"

#include <algorithm>
#include <cmath>

namespace ctxbroker::reference {
namespace {

template <class Function>
Image each_colour(const Image& in, Function function) {
  Image out = in;
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    if (i % 4 != 3) {
      out.values[i] = function(i);
    }
  }
  return out;
}

std::vector<double> gaussian(double radius) {
  const int reach = static_cast<int>(std::ceil(radius));
  std::vector<double> weights;
  double sum = 0;
  for (int i = -reach; i <= reach; ++i) {
    const double sigmas = i == 0 ? 0 : i / (radius / 3);
    weights.push_back(std::exp(-sigmas * sigmas / 2));
    sum += weights.back();
  }
  for (double& weight : weights) {
    weight /= sum;
  }
  return weights;
}

// Blurs along x (dx = 1) or y (dy = 1).
Image convolve(const Image& in, const std::vector<double>& weights, int dx, int dy) {
  Image out(in.width, in.height);
  const int reach = static_cast<int>(weights.size() / 2);
  const double* middle = weights.data() + reach;
  const int width = static_cast<int>(in.width);
  const int height = static_cast<int>(in.height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int i = -reach; i <= reach; ++i) {
        const int from_x = std::clamp(x + i * dx, 0, width - 1);
        const int from_y = std::clamp(y + i * dy, 0, height - 1);
        for (std::size_t c = 0; c < 4; ++c) {
          out.at(static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), c) +=
              middle[i] *
              in.at(static_cast<std::uint32_t>(from_x), static_cast<std::uint32_t>(from_y), c);
        }
      }
    }
  }
  return out;
}

}  // namespace

Image exposure(const Image& in, double stops, double gamma) {
  return each_colour(in, [&](std::size_t i) {
    const double light = in.values[i] * std::exp2(stops);
    return std::copysign(std::pow(std::abs(light), 1 / gamma), light);
  });
}

Image vignette(const Image& in, const Fade& fade) {
  const double half_diagonal = std::hypot(in.width, in.height) / 2;
  return each_colour(in, [&](std::size_t i) {
    const std::size_t pixel = i / 4, row = pixel / in.width;
    const double x = static_cast<double>(pixel % in.width) + 0.5;
    const double y = static_cast<double>(row) + 0.5;
    const double away = std::hypot(x - fade.centre_x * in.width, y - fade.centre_y * in.height);
    const double t = std::clamp((away / half_diagonal - fade.radius) / fade.softness, 0.0, 1.0);
    const double weight = fade.colour[3] * (t * t * 3 - t * t * t * 2);
    return (1 - weight) * in.values[i] + weight * fade.colour[i % 4];
  });
}

Image colour_matrix(const Image& in, const std::array<double, 9>& matrix,
                    const std::array<double, 3>& offset) {
  return each_colour(in, [&](std::size_t i) {
    const std::size_t row = i % 4;
    const double* rgb = &in.values[i - row];
    return matrix[row * 3] * rgb[0] + matrix[row * 3 + 1] * rgb[1] + matrix[row * 3 + 2] * rgb[2] +
           offset[row];
  });
}

Image blur(const Image& in, double radius) {
  const Image premultiplied =
      each_colour(in, [&](std::size_t i) { return in.values[i] * in.values[i - i % 4 + 3]; });
  const std::vector<double> weights = gaussian(radius);
  const Image sums = convolve(convolve(premultiplied, weights, 1, 0), weights, 0, 1);
  return each_colour(sums, [&](std::size_t i) {
    const double alpha = sums.values[i - i % 4 + 3];
    return alpha > 0 ? sums.values[i] / alpha : in.values[i];
  });
}

Image unsharp(const Image& in, double radius, double amount, double threshold) {
  const Image blurred = blur(in, radius);
  return each_colour(in, [&](std::size_t i) {
    const double difference = in.values[i] - blurred.values[i];
    const double beyond = std::max(std::abs(difference) - threshold, 0.0);
    return in.values[i] + amount * std::copysign(beyond, difference);
  });
}

Image colour_grading(const Image& in, const Grade& grade) {
  const double turn = grade.hue * 3.14159265358979323846 / 180;
  Image out = in;
  for (std::size_t at = 0; at < in.values.size(); at += 4) {
    double rgb[3];
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[c] = in.values[at + c] * grade.gain[c];
    }
    const double luminance = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
    for (double& value : rgb) {
      value = luminance + grade.saturation * (value - luminance);
    }
    // The part across the grey axis turns: its cosine stays, its sine goes a quarter turn on.
    const double grey = (rgb[0] + rgb[1] + rgb[2]) / 3;
    for (std::size_t c = 0; c < 3; ++c) {
      const double quarter = (rgb[(c + 2) % 3] - rgb[(c + 1) % 3]) / std::sqrt(3);
      const double turned = grey + std::cos(turn) * (rgb[c] - grey) + std::sin(turn) * quarter;
      const double lifted = turned + grade.lift * (1 - turned);
      out.values[at + c] = std::copysign(std::pow(std::abs(lifted), 1 / grade.gamma), lifted);
    }
  }
  return out;
}

Image histogram_equalisation(const Image& in, double amount, std::size_t levels, double limit) {
  // In float and in this order, so that no pixel falls on another side of a level's border.
  const auto brightness = [&](std::size_t at) {
    const auto part = [&](std::size_t c, float weight) {
      return weight * std::max(static_cast<float>(in.values[at + c]), 0.0F);
    };
    const float luminance = part(0, 0.2126F) + part(1, 0.7152F) + part(2, 0.0722F);
    return std::sqrt(std::min(luminance, 1.0F));
  };
  const auto level = [&](float bright) {
    return std::min(static_cast<std::size_t>(bright * static_cast<float>(levels)), levels - 1);
  };
  std::vector<double> histogram(levels);
  double all = 0;
  for (std::size_t at = 0; at < in.values.size(); at += 4) {
    if (in.values[at + 3] > 0) {
      ++histogram[level(brightness(at))];
      ++all;
    }
  }
  std::vector<double> target(levels);
  double below = 0;
  for (std::size_t one = 0; one < levels; ++one) {
    target[one] = all > 0 ? (below + histogram[one] / 2) / all : 0;
    below += histogram[one];
  }
  Image out = in;
  for (std::size_t at = 0; at < in.values.size(); at += 4) {
    const float bright = brightness(at);
    if (!(bright > 0) || !(in.values[at + 3] > 0)) {
      continue;
    }
    const double wanted = (1 - amount) * bright + amount * target[level(bright)];
    const double light =
        std::clamp(std::pow(wanted / bright, 2), std::exp2(-limit), std::exp2(limit));
    for (std::size_t c = 0; c < 3; ++c) {
      out.values[at + c] *= light;
    }
  }
  return out;
}

}  // namespace ctxbroker::reference
