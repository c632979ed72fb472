// SPDX-License-Identifier: Apache-2.0
// The linear part of a grade as one matrix.
#pragma once

namespace ctxbroker::sample {

// Column by column, as cuBLAS has it: what a pixel (r, g, b, a) is multiplied by.
struct Matrix4 {
  float values[16];
};

// Gain for each channel, then saturation about the luminance (Rec. 709), then hue as a turn about
// the grey axis, which keeps greys. Alpha stays.
Matrix4 grade(const double (&gain)[3], double saturation, double hue_degrees);

}  // namespace ctxbroker::sample
