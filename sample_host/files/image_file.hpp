// SPDX-License-Identifier: Apache-2.0
// Image files of every type that is read and written.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "ctxbroker/record.hpp"
#include "files/image.hpp"
#include "files/output_file.hpp"

namespace ctxbroker::sample_host {

// Told of what is no error: at Severity::info of oddities that harm nothing, at Severity::warning
// of what the file holds and the image leaves out.
using ImageNotice = std::function<void(Severity, const std::string&)>;

// Reads a PNG or an OpenEXR file; its first bytes say which of them it is. Throws Failure (input).
// With `keep_halves`, an OpenEXR file of halves stays halves if its colours need no division by
// alpha.
Image read_image_file(const std::filesystem::path& path, const ImageNotice& notice = {},
                      bool keep_halves = false);

// The format of the output: the type by the extension of `path`, channels and depth as the input's.
// `depth` of 0 chooses the depth that loses least. Throws Failure: output, if no image has this
// extension; usage, if the type has no samples of this depth.
ImageFormat choose_image_format(const ImageFormat& input, const std::filesystem::path& path,
                                int depth);

// Does not commit. Throws Failure (output). `png_compression` is that of write_png. Halves become
// floats in `image`, unless they can be written as they are.
void write_image_file(OutputFile& file, Image& image, const ImageFormat& format,
                      int png_compression);

}  // namespace ctxbroker::sample_host
