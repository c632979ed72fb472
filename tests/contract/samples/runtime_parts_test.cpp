// SPDX-License-Identifier: Apache-2.0
// What the samples on the runtime API work out on the CPU, which needs no GPU to be tested.
#include <gtest/gtest.h>

#include <cmath>

#include "colour_grading/grade.hpp"
#include "convolution_reverb/impulse.hpp"
#include "reference_audio.hpp"
#include "reference_image.hpp"

namespace ctxbroker::sample {
namespace {

TEST(RuntimePart, ImpulseIsTheReferencesResponse) {
  for (const reference::Room& room :
       {reference::Room{0.25, 0.004, 7}, {0.01, 0, 0}, {1, 0.5, 65535}}) {
    for (const std::uint32_t channel : {0U, 1U, 70000U}) {
      const reference::Channel expected = reference::room_response(room, 8000, channel);
      const Room same{room.seconds, room.pre_delay, room.seed};
      const std::vector<float> taps = impulse(same, 8000, channel);
      ASSERT_EQ(taps.size(), expected.size());
      EXPECT_EQ(impulse_length(same, 8000), expected.size());
      for (std::size_t i = 0; i < taps.size(); ++i) {
        ASSERT_FLOAT_EQ(taps[i], static_cast<float>(expected[i])) << i;
      }
    }
  }
}

TEST(RuntimePart, GradeIsTheReferencesMatrix) {
  const reference::Grade grades[] = {{},
                                     {0, 1, {2, 0.5, 1.5}, 1, 0},
                                     {0, 1, {1, 1, 1}, 0.25, 0},
                                     {0, 1, {0.3, 1, 2}, 1.75, 77},
                                     {0, 1, {1, 1, 1}, 0, -180}};
  reference::Image pixel(1, 1);
  for (const reference::Grade& one : grades) {
    const Matrix4 matrix = grade({one.gain[0], one.gain[1], one.gain[2]}, one.saturation, one.hue);
    for (int seed = 0; seed < 20; ++seed) {
      for (int c = 0; c < 4; ++c) {
        pixel.values[static_cast<std::size_t>(c)] = 1 + std::sin(seed * 4 + c);
      }
      const reference::Image expected = reference::colour_grading(pixel, one);
      for (int row = 0; row < 4; ++row) {
        double sum = 0;
        for (int column = 0; column < 4; ++column) {
          sum += matrix.values[column * 4 + row] * pixel.values[static_cast<std::size_t>(column)];
        }
        EXPECT_NEAR(sum, expected.values[static_cast<std::size_t>(row)], 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace ctxbroker::sample
