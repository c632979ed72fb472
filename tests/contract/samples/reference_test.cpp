// SPDX-License-Identifier: Apache-2.0
// The references are what the plug-ins are judged by; here they are judged themselves, by values
// that one can work out on paper.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numeric>

#include "reference_audio.hpp"
#include "reference_image.hpp"

namespace ctxbroker::reference {
namespace {

constexpr double pi = 3.14159265358979323846;

Image one_pixel(double r, double g, double b, double a) {
  Image image(1, 1);
  image.values = {r, g, b, a};
  return image;
}

Image constant(std::uint32_t width, std::uint32_t height, double r, double g, double b, double a) {
  Image image(width, height);
  for (std::size_t i = 0; i < image.values.size(); i += 4) {
    image.values[i] = r;
    image.values[i + 1] = g;
    image.values[i + 2] = b;
    image.values[i + 3] = a;
  }
  return image;
}

Channel impulse(std::size_t frames) {
  Channel channel(frames);
  channel[0] = 1;
  return channel;
}

// Magnitude in dB of an impulse response at a frequency in cycles per sample.
double response_db(const Channel& channel, double frequency) {
  std::complex<double> sum = 0;
  for (std::size_t i = 0; i < channel.size(); ++i) {
    sum += channel[i] * std::polar(1.0, -2 * pi * frequency * static_cast<double>(i));
  }
  return 20 * std::log10(std::abs(sum));
}

TEST(ReferenceExposure, DoublesPerStopAndBendsByGamma) {
  const Image out = exposure(one_pixel(0.125, -1, 0.5, 0.25), 1, 2);
  EXPECT_DOUBLE_EQ(out.values[0], 0.5);
  EXPECT_DOUBLE_EQ(out.values[1], -std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(out.values[2], 1);
  EXPECT_DOUBLE_EQ(out.values[3], 0.25);
}

TEST(ReferenceVignette, KeepsTheMiddleAndReachesTheColour) {
  const Image flat = constant(40, 30, 1, 0.5, 0.25, 0.75);
  Fade fade;
  fade.radius = 0.2;
  fade.softness = 0.4;
  fade.colour = {0, 1, 1, 0.5};
  const Image out = vignette(flat, fade);  // half of the diagonal is 25 pixels
  EXPECT_EQ(out.at(20, 15, 0), 1) << "within the radius";
  EXPECT_NEAR(out.at(0, 0, 0), 0.5, 1e-12) << "beyond radius and softness: half of the way";
  EXPECT_NEAR(out.at(0, 0, 1), 0.75, 1e-12);
  EXPECT_EQ(out.at(0, 0, 3), 0.75) << "alpha stays";
  // 10 pixels to the right of the centre: in the middle of the change.
  EXPECT_NEAR((out.at(29, 15, 0) + out.at(30, 15, 0)) / 2, 0.75, 1e-3);
  fade.centre_x = fade.centre_y = 0;
  EXPECT_EQ(vignette(flat, fade).at(0, 0, 0), 1);
}

TEST(ReferenceColourMatrix, MatrixRowsAreOutputChannels) {
  const Image out = colour_matrix(one_pixel(1, 2, 3, 0.5), {0, 1, 0, 0, 0, 1, 1, 1, 1}, {0, 10, 0});
  EXPECT_EQ(out.values, (std::vector<double>{2, 13, 6, 0.5}));
}

TEST(ReferenceBlur, KeepsAConstantImageAndRadiusZeroKeepsAll) {
  const Image flat = constant(9, 5, 0.25, 0.5, 0.75, 0.5);
  const Image out = blur(flat, 7.5);
  for (std::size_t i = 0; i < flat.values.size(); ++i) {
    EXPECT_NEAR(out.values[i], flat.values[i], 1e-12);
  }
  EXPECT_EQ(blur(one_pixel(0.1, 0.2, 0.3, 0), 0).values, one_pixel(0.1, 0.2, 0.3, 0).values);
}

TEST(ReferenceBlur, ImpulseBecomesTheProductOfTwoGaussians) {
  Image image = constant(15, 15, 0, 0, 0, 1);
  image.at(7, 7, 0) = 1;
  const Image out = blur(image, 3);  // sigma 1, seven taps
  double norm = 0;
  for (int i = -3; i <= 3; ++i) {
    norm += std::exp(-i * i / 2.0);
  }
  EXPECT_NEAR(out.at(7, 7, 0), 1 / (norm * norm), 1e-12);
  EXPECT_NEAR(out.at(9, 8, 0), std::exp(-5 / 2.0) / (norm * norm), 1e-12);
  EXPECT_DOUBLE_EQ(out.at(11, 7, 0), 0);
  EXPECT_DOUBLE_EQ(out.at(7, 11, 0), 0);
}

TEST(ReferenceBlur, InvisiblePixelsDoNotBleed) {
  Image image = constant(8, 1, 1, 0.5, 0.25, 1);
  for (std::uint32_t x = 4; x < 8; ++x) {
    image.at(x, 0, 0) = 100;  // a colour that nobody sees
    image.at(x, 0, 3) = 0;
  }
  const Image out = blur(image, 2);
  EXPECT_NEAR(out.at(3, 0, 0), 1, 1e-12);
  EXPECT_NEAR(out.at(4, 0, 0), 1, 1e-12);
  EXPECT_GT(out.at(4, 0, 3), 0);
  EXPECT_LT(out.at(3, 0, 3), 1);
  EXPECT_DOUBLE_EQ(out.at(7, 0, 0), 100);
}

TEST(ReferenceUnsharp, LeavesWhatIsFlatAndSteepensAnEdge) {
  Image image = constant(32, 3, 0.25, 0.25, 0.25, 1);
  for (std::uint32_t x = 16; x < 32; ++x) {
    image.at(x, 1, 0) = image.at(x, 0, 0) = image.at(x, 2, 0) = 0.75;
  }
  const Image out = unsharp(image, 3, 2, 0);
  EXPECT_NEAR(out.at(0, 1, 0), 0.25, 1e-12);
  EXPECT_LT(out.at(15, 1, 0), 0.25);
  EXPECT_GT(out.at(16, 1, 0), 0.75);
  EXPECT_NEAR(out.at(16, 1, 1), 0.25, 1e-12);
  EXPECT_EQ(unsharp(image, 3, 2, 0.5).values, image.values);
}

TEST(ReferenceGain, SixDecibelsDoubleAndMuteIsSilence) {
  EXPECT_NEAR(gain({{0.25}}, 20 * std::log10(2.0), false)[0][0], 0.5, 1e-12);
  EXPECT_EQ(gain({{0.25, -1}}, 20, true), (Audio{{0, 0}}));
}

TEST(ReferenceEqualiser, GainsAreWhereTheBandsAre) {
  const std::array<Band, 3> bands{{{100, 6, 0.7071}, {1000, -9, 1}, {8000, 3, 0.7071}}};
  const Channel out = equaliser({impulse(48000)}, bands, 48000)[0];
  EXPECT_NEAR(response_db(out, 0), 6, 0.01);
  EXPECT_NEAR(response_db(out, 0.5), 3, 0.01);
  EXPECT_NEAR(response_db(out, 1000.0 / 48000), -9, 0.15);  // the shelves reach in a little
  const Channel low_only =
      equaliser({impulse(48000)}, {{{100, 6, 0.7071}, {1000, 0, 1}, {8000, 0, 1}}}, 48000)[0];
  EXPECT_NEAR(response_db(low_only, 100.0 / 48000), 3, 0.01);  // half way up at the corner
}

TEST(ReferenceFir, ImpulseResponseIsTheTaps) {
  const std::vector<double> taps{0.5, -0.25, 0.125};
  EXPECT_EQ(fir({impulse(5)}, taps), (Audio{{0.5, -0.25, 0.125, 0, 0}}));
}

TEST(ReferenceFir, FiltersPassAndStop) {
  const std::vector<double> low = low_pass_taps(4800, 48000, 255);
  EXPECT_NEAR(response_db(low, 0), 0, 1e-9);
  EXPECT_NEAR(response_db(low, 0.1), -6, 0.1);
  EXPECT_LT(response_db(low, 0.15), -70);
  for (const std::size_t count : {255, 256}) {
    const std::vector<double> high = high_pass_taps(4800, 48000, count);
    EXPECT_EQ(high.size(), count);
    EXPECT_NEAR(response_db(high, 0.4), 0, 0.01);
    EXPECT_LT(response_db(high, 0.05), -70);
    EXPECT_NEAR(std::accumulate(high.begin(), high.end(), 0.0), 0, 1e-12);
  }
  EXPECT_EQ(low_pass_taps(100, 48000, 1), std::vector<double>{1});
}

TEST(ReferenceDelay, EchoesRepeatAndFade) {
  const Channel out = delay({impulse(10)}, 3, 0.5, 0.25)[0];
  const Channel expected{0.75, 0, 0, 0.25, 0, 0, 0.125, 0, 0, 0.0625};
  EXPECT_EQ(out, expected);
}

TEST(ReferenceColourGrading, GainSaturationHueLiftAndGammaGiveKnownColours) {
  const Image pixel = one_pixel(0.25, 0.5, 1, 0.5);
  EXPECT_EQ(colour_grading(pixel, {}).values, pixel.values);
  Grade grade;
  grade.gain = {4, 2, 0};
  EXPECT_EQ(colour_grading(pixel, grade).values, (std::vector<double>{1, 1, 0, 0.5}));
  grade = {};
  grade.saturation = 0;
  const Image grey = colour_grading(pixel, grade);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(grey.values[c], 0.2126 * 0.25 + 0.7152 * 0.5 + 0.0722, 1e-12);
  }
  grade = {};
  grade.hue = 120;  // red goes where green was
  const Image turned = colour_grading(pixel, grade);
  const double expected[] = {1, 0.25, 0.5};
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(turned.values[c], expected[c], 1e-12);
  }
  grade = {};
  grade.lift = 0.5;
  grade.gamma = 2;
  const Image lifted = colour_grading(pixel, grade);
  EXPECT_NEAR(lifted.values[0], std::sqrt(0.25 + 0.5 * 0.75), 1e-12);
  EXPECT_NEAR(lifted.values[2], 1, 1e-12);
}

TEST(ReferenceHistogramEqualisation, GivesEachLevelItsShare) {
  Image in(4, 1);
  const double greys[] = {0.01, 0.01, 0.04, 0.09};  // brightness 0.1, 0.1, 0.2, 0.3
  for (std::size_t i = 0; i < 16; ++i) {
    in.values[i] = i % 4 == 3 ? 1 : greys[i / 4];
  }
  // Two pixels of level 1, one of 2, one of 3: shares of 0.25, 0.625 and 0.875.
  const Image out = histogram_equalisation(in, 1, 12, 16);
  EXPECT_NEAR(out.values[0], 0.25 * 0.25, 1e-6);
  EXPECT_NEAR(out.values[9], 0.625 * 0.625, 1e-6);
  EXPECT_NEAR(out.values[14], 0.875 * 0.875, 1e-6);
  EXPECT_EQ(out.values[15], 1);
  EXPECT_EQ(histogram_equalisation(in, 0, 12, 16).values, in.values);
  EXPECT_NEAR(histogram_equalisation(in, 1, 12, 1).values[0], 0.02, 1e-6);  // one stop
  in.values[15] = 0;  // invisible: it does not count, and stays
  const Image fewer = histogram_equalisation(in, 1, 12, 16);
  EXPECT_NEAR(fewer.values[0], 1.0 / 9, 1e-6);
  EXPECT_EQ(fewer.values[14], 0.09);
}

TEST(ReferenceReverb, IsNoiseThatFadesBySixtyDecibels) {
  const Room room{0.5, 0.01, 3};
  const Channel response = room_response(room, 8000, 0);
  ASSERT_EQ(response.size(), 80U + 4000U);
  const auto energy = [&](std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) {
      sum += response[i] * response[i];
    }
    return sum;
  };
  EXPECT_EQ(energy(0, 80), 0);
  EXPECT_NEAR(energy(80, response.size()), 1, 1e-12);
  EXPECT_NEAR(10 * std::log10(energy(80, 1080) / energy(3080, 4080)), 45, 1.5);
  EXPECT_NE(response, room_response(room, 8000, 1));
  EXPECT_NE(response, room_response({0.5, 0.01, 4}, 8000, 0));

  const Audio out = reverb({impulse(3000)}, room, 8000, 0.25);
  EXPECT_DOUBLE_EQ(out[0][0], 0.75);
  EXPECT_DOUBLE_EQ(out[0][100], 0.25 * response[100]);
}

}  // namespace
}  // namespace ctxbroker::reference
