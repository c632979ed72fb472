// SPDX-License-Identifier: Apache-2.0
// What the plug-in and its kernel both know.
#pragma once

struct Matrix {
  float m[9];       // row by row
  float offset[3];  // added to red, green, blue
};
