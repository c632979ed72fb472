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
    return std::pow(std::max(in.values[i], 0.0) * std::exp2(stops), 1 / gamma);
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

}  // namespace ctxbroker::reference
