// SPDX-License-Identifier: Apache-2.0
#include "grade.hpp"

#include <cmath>

namespace ctxbroker::sample {

Matrix4 grade(const double (&gain)[3], double saturation, double hue_degrees) {
  constexpr double luminance[3] = {0.2126, 0.7152, 0.0722};
  constexpr double degree = 3.14159265358979323846 / 180;
  const double cosine = std::cos(hue_degrees * degree);
  const double sine = std::sin(hue_degrees * degree) / std::sqrt(3.0);
  Matrix4 matrix{};
  matrix.values[15] = 1;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      double sum = 0;
      for (int k = 0; k < 3; ++k) {
        // Rodrigues' formula for a turn about (1, 1, 1).
        const double cross = k == (row + 1) % 3 ? -sine : k == (row + 2) % 3 ? sine : 0;
        const double turned = (k == row ? cosine : 0) + (1 - cosine) / 3 + cross;
        const double saturated =
            (1 - saturation) * luminance[column] + (k == column ? saturation : 0);
        sum += turned * saturated;
      }
      matrix.values[column * 4 + row] = static_cast<float>(sum * gain[column]);
    }
  }
  return matrix;
}

}  // namespace ctxbroker::sample
