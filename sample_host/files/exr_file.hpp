// SPDX-License-Identifier: Apache-2.0
// OpenEXR files. Their colours are linear and are not converted.
//
// OpenEXR's colours are premultiplied with alpha and those of plug-ins are not, so reading divides
// by alpha and writing multiplies by it. Where alpha is 1, and where it is 0, no bit changes;
// elsewhere halves come back unchanged, and floats to their last bit. A pixel of alpha 0 that has a
// colour (a glow) keeps it from OpenEXR to OpenEXR.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "files/image.hpp"
#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

// Reads the data window of the first part with colours: channels R, G and B, or Y alone, and A if
// there is one; scanlines or the finest level of tiles. Throws Failure (input): see
// check_input_file; no such channels; deep, subsampled or of whole numbers; damaged or truncated;
// too large. `warning` is told of channels and parts that are left out; may be empty.
// With `keep_halves`, halves are not converted if each alpha is 1 or not above 0.
Image read_exr(const std::filesystem::path& path,
               const std::function<void(const std::string&)>& warning = {},
               bool keep_halves = false);

// What viewers show: the pixels in the display window of the OpenEXR file that `image` was, and
// transparent black where it has none. Nothing if that is the image as it is.
std::optional<Image> show_display_window(const Image& image);

// Makes `image` what show_display_window returns, with the display window as its data window. Does
// nothing if there is nothing to change.
void fill_display_window(Image& image);

// Writes scanlines as halves (format.depth 16; values beyond their range become the nearest finite
// half) or floats (32). If the image was an OpenEXR file, windows, attributes and a lossless
// compression are as there; else it is compressed as ZIP. Does not commit. Throws Failure (output).
void write_exr(OutputFile& file, const Image& image, const ImageFormat& format);

}  // namespace ctxbroker::sample_host
