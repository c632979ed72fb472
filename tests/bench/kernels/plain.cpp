// SPDX-License-Identifier: Apache-2.0
#include "kernels/plain.hpp"

#include <algorithm>
#include <cmath>

namespace ctxbroker::bench::plain {
namespace {

template <typename T>
void blur_rows(const T* in, T* out, int width, int height, int first, int last) {
  for (int y = first; y < last; ++y) {
    for (int x = 0; x < width; ++x) {
      T sum = T(0);
      for (int dy = -2; dy <= 2; ++dy) {
        const T* row = in + std::clamp(y + dy, 0, height - 1) * width;
        for (int dx = -2; dx <= 2; ++dx) sum += row[std::clamp(x + dx, 0, width - 1)];
      }
      out[y * width + x] = sum * T(0.04F);
    }
  }
}

}  // namespace

void vector_add(const float* a, const float* b, float* out, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) out[i] = a[i] + b[i];
}

void powers(const float* a, const float* b, float* out, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) out[i] = std::pow(a[i], b[i]);
}

void blur(const float* in, float* out, int width, int height, int first, int last) {
  blur_rows(in, out, width, height, first, last);
}

void blur(const Half* in, Half* out, int width, int height, int first, int last) {
  blur_rows(in, out, width, height, first, last);
}

void fir(const float* in, const float* taps, float* out, int count, std::size_t first,
         std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    float sum = 0;
    for (int t = 0; t < count; ++t) sum += taps[t] * in[i + static_cast<std::size_t>(t)];
    out[i] = sum;
  }
}

void matrix(const float* a, const float* b, float* out, int size, int first, int last) {
  for (int row = first; row < last; ++row) {
    for (int column = 0; column < size; ++column) {
      float sum = 0;
      for (int k = 0; k < size; ++k) sum += a[row * size + k] * b[k * size + column];
      out[row * size + column] = sum;
    }
  }
}

}  // namespace ctxbroker::bench::plain
