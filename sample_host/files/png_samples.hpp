// SPDX-License-Identifier: Apache-2.0
// Between a PNG's samples and linear float RGBA, a row at a time.
#pragma once

#include <cstdint>

#include "files/image.hpp"
#include "files/srgb.hpp"

namespace ctxbroker::sample_host {

// `raw` holds samples of format.depth bits as in the file, the high byte of 16 bits first; `pixels`
// holds width * 4 floats. Any thread.
void decode_row(const unsigned char* raw, const ImageFormat& format, std::uint32_t width,
                float* pixels);
void encode_row(const float* pixels, const ImageFormat& format, std::uint32_t width,
                unsigned char* raw);

}  // namespace ctxbroker::sample_host
