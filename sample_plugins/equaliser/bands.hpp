// SPDX-License-Identifier: Apache-2.0
// What the plug-in and its kernel both know.
#pragma once

constexpr int band_count = 3;

// y = b0 x + b1 x' + b2 x'' - a1 y' - a2 y''
struct Biquad {
  double b0, b1, b2, a1, a2;
};

struct Bands {
  Biquad band[band_count];
};
