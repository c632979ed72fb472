// SPDX-License-Identifier: Apache-2.0
// Between an OpenEXR file's pixels and those of plug-ins, a row at a time.
#pragma once

#include <half.h>

#include <cstdint>
#include <vector>

namespace ctxbroker::sample_host {

// Divides colours by alpha, except where alpha is 0, negative or not a number.
void make_straight(float* pixels, std::uint32_t width);

// Whether colours are the same with straight and with premultiplied alpha: each alpha is 1, 0,
// negative or not a number. The pixels are halves, 4 each.
bool is_straight_anyway(const std::vector<std::uint16_t>& halves);

// `channels` samples (grey, grey and alpha, RGB, RGBA) of each pixel. If there is an alpha, colours
// are multiplied by it; where it is 0, they become 0 unless `keep_transparent`.
void make_premultiplied(const float* pixels, int channels, bool keep_transparent,
                        std::uint32_t width, float* samples);

// The nearest half; beyond their range the nearest finite one. Infinities and what is not a number
// stay so.
half to_half(float value);

}  // namespace ctxbroker::sample_host
