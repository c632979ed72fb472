// SPDX-License-Identifier: Apache-2.0
#include <Iex.h>
#include <ImfAttribute.h>
#include <ImfChannelList.h>
#include <ImfFrameBuffer.h>
#include <ImfIO.h>
#include <ImfOutputFile.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>

#include "files/exr_file.hpp"
#include "files/exr_header.hpp"
#include "files/exr_samples.hpp"
#include "files/parallel.hpp"

namespace ctxbroker::sample_host {

namespace {

// The file remembers the first error, and OpenEXR is told of it.
class Stream : public Imf::OStream {
 public:
  explicit Stream(OutputFile& file) : Imf::OStream(file.path().c_str()), file_(file) {}

  void write(const char* from, int bytes) override {
    if (!file_.write(from, static_cast<std::size_t>(bytes))) throw Iex::IoExc("write failed");
  }
  std::uint64_t tellp() override { return static_cast<std::uint64_t>(move(0, SEEK_CUR)); }
  void seekp(std::uint64_t position) override {
    move(static_cast<std::int64_t>(position), SEEK_SET);
  }

 private:
  std::int64_t move(std::int64_t offset, int whence) {
    const std::int64_t position = file_.seek(offset, whence);
    if (position < 0) throw Iex::IoExc("seek failed");
    return position;
  }

  OutputFile& file_;
};

// Attributes that say how the pixels were stored, or what this file no longer holds.
constexpr std::array<std::string_view, 15> not_copied{"channels",      "chunkCount",
                                                      "compression",   "dataWindow",
                                                      "displayWindow", "dwaCompressionLevel",
                                                      "lineOrder",     "maxSamplesPerPixel",
                                                      "multiView",     "name",
                                                      "preview",       "tiles",
                                                      "type",          "version",
                                                      "view"};

std::span<const char* const> channel_order(int channels) {
  static constexpr std::array grey{"Y", "A"};
  static constexpr std::array colour{"R", "G", "B", "A"};
  return channels < 3
             ? std::span<const char* const>(grey).first(static_cast<std::size_t>(channels))
             : std::span<const char* const>(colour).first(static_cast<std::size_t>(channels));
}

bool is_lossless(Imf::Compression compression) {
  constexpr std::array lossless{Imf::NO_COMPRESSION, Imf::RLE_COMPRESSION, Imf::ZIPS_COMPRESSION,
                                Imf::ZIP_COMPRESSION, Imf::PIZ_COMPRESSION};
  return std::find(lossless.begin(), lossless.end(), compression) != lossless.end();
}

Imf::Header make_header(const Image& image, const ImageFormat& format) {
  const auto width = static_cast<int>(image.width);
  const auto height = static_cast<int>(image.height);
  Imf::Header header(width, height);
  header.compression() = Imf::ZIP_COMPRESSION;
  if (image.exr) {
    const Imf::Header& input = image.exr->header;
    header.dataWindow() = input.dataWindow();
    header.displayWindow() = input.displayWindow();
    if (is_lossless(input.compression())) header.compression() = input.compression();
    for (auto it = input.begin(); it != input.end(); ++it) {
      if (std::find(not_copied.begin(), not_copied.end(), it.name()) == not_copied.end()) {
        header.insert(it.name(), it.attribute());
      }
    }
  }
  const Imf::PixelType type = format.depth == 16 ? Imf::HALF : Imf::FLOAT;
  for (const char* name : channel_order(format.channels)) header.channels().insert(name, {type});
  return header;
}

// Rows are converted on all cores, some at a time, and compressed by OpenEXR's own threads.
template <typename Sample, typename Convert>
void write_pixels(Imf::OutputFile& out, const Image& image, const ImageFormat& format,
                  Imf::PixelType type, Convert convert) {
  constexpr std::size_t rows_at_once = 512;
  const auto channels = static_cast<std::size_t>(format.channels);
  const std::size_t row_samples = image.width * channels;
  std::vector<Sample> samples(row_samples * std::min<std::size_t>(rows_at_once, image.height));
  const Imath::Box2i window = out.header().dataWindow();
  for (std::size_t first = 0; first < image.height; first += rows_at_once) {
    const std::size_t rows = std::min<std::size_t>(rows_at_once, image.height - first);
    for_each_band(rows, [&](std::size_t row, std::size_t end) {
      std::vector<float> scratch(row_samples);
      for (; row < end; ++row) {
        make_premultiplied(image.pixels.data() + (first + row) * image.width * 4, format.channels,
                           image.exr != nullptr, image.width, scratch.data());
        std::transform(scratch.begin(), scratch.end(), samples.data() + row * row_samples, convert);
      }
    });
    Imath::Box2i part = window;
    part.min.y += static_cast<int>(first);
    part.max.y = part.min.y + static_cast<int>(rows) - 1;
    Imf::FrameBuffer buffer;
    std::size_t place = 0;
    for (const char* name : channel_order(format.channels)) {
      buffer.insert(
          name, Imf::Slice::Make(type, samples.data() + place++, part, channels * sizeof(Sample),
                                 row_samples * sizeof(Sample)));
    }
    out.setFrameBuffer(buffer);
    out.writePixels(static_cast<int>(rows));
  }
}

// Without a conversion. The colours need no multiplication by alpha.
void write_halves(Imf::OutputFile& out, const Image& image, const ImageFormat& format) {
  const std::size_t stride = 4 * sizeof(std::uint16_t);
  Imf::FrameBuffer buffer;
  std::size_t component = 0;
  for (const char* const name : channel_order(format.channels)) {
    buffer.insert(name, Imf::Slice::Make(Imf::HALF, image.halves.data() + component++,
                                         out.header().dataWindow(), stride, stride * image.width));
  }
  out.setFrameBuffer(buffer);
  out.writePixels(static_cast<int>(image.height));
}

}  // namespace

void write_exr(OutputFile& file, const Image& image, const ImageFormat& format) {
  start_exr_threads();
  try {
    Stream stream(file);
    Imf::OutputFile out(stream, make_header(image, format));
    if (!image.halves.empty()) {
      write_halves(out, image, format);
    } else if (format.depth == 16) {
      write_pixels<half>(out, image, format, Imf::HALF, to_half);
    } else {
      write_pixels<float>(out, image, format, Imf::FLOAT, [](float value) { return value; });
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    file.check();
    throw output_failure(
        file.path(), "cannot be encoded: " + std::string(error.what()) + "; write a PNG instead");
  }
  // OpenEXR ends the file in a destructor, which keeps its errors to itself.
  file.check();
}

}  // namespace ctxbroker::sample_host
