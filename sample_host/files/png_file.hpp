// SPDX-License-Identifier: Apache-2.0
// PNG files.
//
// Samples are taken as sRGB whatever colour chunks the file has; those chunks (and resolution and
// Exif) are carried over to the output, so that it is shown with the same colours as the input.
// Palettes are read as RGB (RGBA with transparency), grey of 1, 2 and 4 bits as 8 bits, a
// transparent colour (tRNS) as an alpha channel.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "files/image.hpp"
#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

// Reads the whole file, its end included. Throws Failure (input): see check_input_file; no PNG;
// damaged or truncated; too large. `warning` is told of oddities that harm nothing; may be empty.
Image read_png(const std::filesystem::path& path,
               const std::function<void(const std::string&)>& warning = {});

// Encodes `image` as `format` says, each sample rounded to the nearest code. Grey is the luminance
// (Rec. 709) where red, green and blue differ; alpha is dropped where the format has none. Does
// not commit. Throws Failure (output). `compression`: 0 stores the samples, 1 is the fastest that
// compresses, 9 makes the smallest file.
void write_png(OutputFile& file, const Image& image, const ImageFormat& format,
               int compression = 1);

}  // namespace ctxbroker::sample_host
