// SPDX-License-Identifier: Apache-2.0
#include <Iex.h>
#include <ImfChannelList.h>
#include <ImfFrameBuffer.h>
#include <ImfIO.h>
#include <ImfInputPart.h>
#include <ImfMultiPartInputFile.h>
#include <ImfPartType.h>
#include <ImfThreading.h>
#include <ImfTileDescription.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "files/exr_file.hpp"
#include "files/exr_header.hpp"
#include "files/exr_samples.hpp"
#include "files/input_file.hpp"
#include "files/parallel.hpp"
#include "files/start.hpp"

namespace ctxbroker::sample_host {

namespace {

struct FileCloser {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

// OpenEXR's own stream does not say that the file has ended.
class Stream : public Imf::IStream {
 public:
  Stream(const std::filesystem::path& path, std::uint64_t size)
      : Imf::IStream(path.c_str()),
        size_(size),
        file_(std::fopen(from_start(path).c_str(), "rbe")) {
    if (!file_) throw open_failure(path, errno);
  }

  bool read(char* to, int bytes) override {
    const auto count = static_cast<std::size_t>(bytes);
    const std::size_t got = std::fread(to, 1, count, file_.get());
    position_ += got;
    if (got < count) {
      at_end_ = std::ferror(file_.get()) == 0;
      throw Iex::InputExc(at_end_ ? "the file ends too early" : "the system cannot read it");
    }
    return position_ < size_;
  }
  std::uint64_t tellg() override { return position_; }
  void seekg(std::uint64_t position) override {
    // Beyond the end it is an error of the next read.
    position_ = std::min(position, size_);
    if (::fseeko(file_.get(), static_cast<off_t>(position_), SEEK_SET) != 0) {
      throw Iex::InputExc("the system cannot read it");
    }
  }

  std::uint64_t size() const noexcept { return size_; }
  bool at_end() const noexcept { return at_end_; }

 private:
  std::uint64_t size_;
  std::uint64_t position_ = 0;
  std::unique_ptr<std::FILE, FileCloser> file_;
  std::atomic<bool> at_end_{false};
};

std::string channel_names(const Imf::ChannelList& channels, const std::string& unless = "") {
  constexpr int most = 12;
  std::string text;
  int count = 0;
  for (auto it = channels.begin(); it != channels.end(); ++it) {
    const std::string name = it.name();
    if (name.size() == 1 && unless.find(name) != std::string::npos) continue;
    if (++count > most) continue;
    text += (text.empty() ? "" : ", ") + name;
  }
  if (count > most) text += " and " + std::to_string(count - most) + " more";
  return text;
}

// "RGB", "Y" or nothing.
std::string colours_of(const Imf::Header& header) {
  const Imf::ChannelList& channels = header.channels();
  const auto has = [&](const char* name) { return channels.findChannel(name) != nullptr; };
  if (has("R") && has("G") && has("B")) return "RGB";
  return has("Y") && !has("RY") && !has("BY") ? "Y" : "";
}

bool is_deep(const Imf::Header& header) {
  return header.hasType() && !Imf::isImage(header.type());
}

int choose_part(const std::filesystem::path& path, const Imf::MultiPartInputFile& file) {
  for (int part = 0; part < file.parts(); ++part) {
    if (!is_deep(file.header(part)) && !colours_of(file.header(part)).empty()) return part;
  }
  const Imf::Header& header = file.header(0);
  if (is_deep(header)) {
    throw input_failure(path, "holds deep pixels, which are not read; flatten it first");
  }
  const std::string names = channel_names(header.channels());
  throw input_failure(
      path, "has neither channels R, G and B nor a Y without chroma; its channels: " +
                (names.empty() ? "none" : names) + "; write it with channels R, G and B first");
}

void check_window(const std::filesystem::path& path, const char* what, const Imath::Box2i& window) {
  const auto width = static_cast<std::uint64_t>(std::int64_t{window.max.x} - window.min.x + 1);
  const auto height = static_cast<std::uint64_t>(std::int64_t{window.max.y} - window.min.y + 1);
  // Each alone, so that their product cannot overflow.
  if (width <= image_max_pixels && height <= image_max_pixels &&
      width * height <= image_max_pixels) {
    return;
  }
  throw input_failure(path, "is too large: its " + std::string(what) + " window has " +
                                std::to_string(width) + " x " + std::to_string(height) +
                                " pixels, at most " + std::to_string(image_max_pixels) +
                                " in all are read; scale it down first");
}

// Memory for all pixels is taken at once. No compression packs this many into a byte.
void check_file_size(const std::filesystem::path& path, std::uint64_t file_size,
                     const Image& image) {
  constexpr std::uint64_t most_pixels_per_byte = 65536;
  const std::uint64_t pixels = std::uint64_t{image.width} * image.height;
  if (pixels / most_pixels_per_byte <= file_size) return;
  throw input_failure(path, "is damaged: " + std::to_string(image.width) + " x " +
                                std::to_string(image.height) + " pixels cannot be in " +
                                std::to_string(file_size) + " bytes; copy it again");
}

// OpenEXR takes memory for whole tiles, however small the image is.
void check_tiles(const std::filesystem::path& path, const Imf::Header& header, std::uint32_t width,
                 std::uint32_t height) {
  constexpr std::uint32_t usual = 4096;
  if (!header.hasTileDescription()) return;
  const Imf::TileDescription& tiles = header.tileDescription();
  if (tiles.xSize <= std::max(width, usual) && tiles.ySize <= std::max(height, usual)) return;
  throw input_failure(path, "is damaged: its tiles have " + std::to_string(tiles.xSize) + " x " +
                                std::to_string(tiles.ySize) + " pixels, the image " +
                                std::to_string(width) + " x " + std::to_string(height) +
                                "; copy it again");
}

void check_channel(const std::filesystem::path& path, const char* name,
                   const Imf::Channel& channel) {
  const auto refuse = [&](const char* why) {
    throw input_failure(path, "its channel " + std::string(name) + why);
  };
  if (channel.type == Imf::UINT) refuse(" has whole numbers; convert it to half or float first");
  if (channel.xSampling != 1 || channel.ySampling != 1) {
    refuse(" has fewer samples than the image has pixels; resample it first");
  }
}

ImageFormat check_channels(const std::filesystem::path& path, const Imf::Header& header) {
  ImageFormat format;
  format.type = ImageType::exr;
  format.depth = 16;
  format.channels = 0;
  for (const char name : colours_of(header) + "A") {
    const std::array text{name, '\0'};
    const Imf::Channel* channel = header.channels().findChannel(text.data());
    if (channel == nullptr) continue;
    check_channel(path, text.data(), *channel);
    ++format.channels;
    if (channel->type == Imf::FLOAT) format.depth = 32;
  }
  return format;
}

void tell_what_is_left_out(const Imf::MultiPartInputFile& file, int part,
                           const std::function<void(const std::string&)>& warning) {
  if (!warning) return;
  const Imf::Header& header = file.header(part);
  if (const std::string names = channel_names(header.channels(), colours_of(header) + "A");
      !names.empty()) {
    warning("channels that are not read and will be missing in the output: " + names);
  }
  if (file.parts() > 1) {
    warning("only part " + std::to_string(part + 1) + " of " + std::to_string(file.parts()) +
            " is read" + (header.hasName() ? ", \"" + header.name() + "\"" : ""));
  }
}

void read_pixels(Imf::InputPart& part, Image& image) {
  const Imath::Box2i window = part.header().dataWindow();
  const std::size_t stride = 4 * sizeof(float);
  Imf::FrameBuffer buffer;
  const auto add = [&](const char* name, std::size_t component, double fill) {
    buffer.insert(name, Imf::Slice::Make(Imf::FLOAT, image.pixels.data() + component, window,
                                         stride, stride * image.width, 1, 1, fill));
  };
  const bool grey = image.format.channels < 3;
  if (grey) {
    add("Y", 0, 0.0);
  } else {
    add("R", 0, 0.0);
    add("G", 1, 0.0);
    add("B", 2, 0.0);
  }
  add("A", 3, 1.0);
  part.setFrameBuffer(buffer);
  part.readPixels(window.min.y, window.max.y);
  for_each_band(image.height, [&](std::size_t first, std::size_t end) {
    for (std::size_t y = first; y < end; ++y) {
      float* row = image.pixels.data() + y * image.width * 4;
      for (std::size_t x = 0; grey && x < image.width; ++x) {
        row[4 * x + 1] = row[4 * x + 2] = row[4 * x];
      }
      make_straight(row, image.width);
    }
  });
}

// As they are. False if they are not halves, or straight alpha makes other numbers of them.
bool keep_halves(Imf::InputPart& part, Image& image) {
  if (image.format.depth != 16 || image.format.channels < 3) return false;
  const Imath::Box2i window = part.header().dataWindow();
  const std::size_t stride = 4 * sizeof(std::uint16_t);
  image.halves.resize(std::size_t{image.width} * image.height * 4);
  Imf::FrameBuffer buffer;
  std::size_t component = 0;
  for (const char* const name : {"R", "G", "B", "A"}) {
    buffer.insert(name, Imf::Slice::Make(Imf::HALF, image.halves.data() + component, window, stride,
                                         stride * image.width, 1, 1, component == 3 ? 1.0 : 0.0));
    ++component;
  }
  part.setFrameBuffer(buffer);
  part.readPixels(window.min.y, window.max.y);
  if (is_straight_anyway(image.halves)) return true;
  image.halves = {};
  return false;
}

Image read_from(Stream& stream, const std::filesystem::path& path,
                const std::function<void(const std::string&)>& warning, bool halves) {
  // A table of places that is not complete is not mended: pixels would be missing.
  Imf::MultiPartInputFile file(stream, Imf::globalThreadCount(), false);
  const int number = choose_part(path, file);
  const Imf::Header& header = file.header(number);
  check_window(path, "data", header.dataWindow());
  check_window(path, "display", header.displayWindow());
  Image image;
  const Imath::Box2i window = header.dataWindow();
  image.width = static_cast<std::uint32_t>(window.max.x - window.min.x + 1);
  image.height = static_cast<std::uint32_t>(window.max.y - window.min.y + 1);
  check_file_size(path, stream.size(), image);
  check_tiles(path, header, image.width, image.height);
  image.format = check_channels(path, header);
  if (!file.partComplete(number)) {
    throw input_failure(path, "is truncated: its writer did not finish it; write or copy it again");
  }
  tell_what_is_left_out(file, number, warning);
  image.exr = std::make_shared<ExrHeader>(ExrHeader{header});
  Imf::InputPart part(file, number);
  if (halves && keep_halves(part, image)) return image;
  image.pixels.resize(std::size_t{image.width} * image.height * 4);
  read_pixels(part, image);
  return image;
}

// OpenEXR's words can have several lines, and bytes of the file in them.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return text;
}

}  // namespace

void start_exr_threads() {
  static const bool started = [] {
    constexpr unsigned most = 16;
    Imf::setGlobalThreadCount(
        static_cast<int>(std::min(std::thread::hardware_concurrency(), most)));
    return true;
  }();
  static_cast<void>(started);
}

Image read_exr(const std::filesystem::path& path,
               const std::function<void(const std::string&)>& warning, bool keep_halves) {
  const std::uint64_t size = check_input_file(path);
  start_exr_threads();
  Stream stream(path, size);
  try {
    return read_from(stream, path, warning, keep_halves);
  } catch (const Failure&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    if (stream.at_end()) {
      throw input_failure(path,
                          "is truncated or damaged: it ends before its pixels do; copy it again");
    }
    throw input_failure(path, "is damaged: " + one_line(error.what()) + "; copy it again");
  }
}

std::optional<Image> show_display_window(const Image& image) {
  if (!image.exr) return std::nullopt;
  const Imath::Box2i data = image.exr->header.dataWindow();
  const Imath::Box2i display = image.exr->header.displayWindow();
  if (data == display) return std::nullopt;
  Image shown;
  shown.width = static_cast<std::uint32_t>(display.max.x - display.min.x + 1);
  shown.height = static_cast<std::uint32_t>(display.max.y - display.min.y + 1);
  shown.format = image.format;
  shown.pixels.resize(std::size_t{shown.width} * shown.height * 4);
  const int left = std::max(data.min.x, display.min.x);
  const int right = std::min(data.max.x, display.max.x);
  const int bottom = std::min(data.max.y, display.max.y);
  for (int y = std::max(data.min.y, display.min.y); y <= bottom && left <= right; ++y) {
    const auto place = [&](const Imath::Box2i& window, std::uint32_t width) {
      return (static_cast<std::size_t>(y - window.min.y) * width +
              static_cast<std::size_t>(left - window.min.x)) *
             4;
    };
    std::copy_n(image.pixels.data() + place(data, image.width),
                static_cast<std::size_t>(right - left + 1) * 4,
                shown.pixels.data() + place(display, shown.width));
  }
  return shown;
}

void fill_display_window(Image& image) {
  if (image.exr && image.exr->header.dataWindow() != image.exr->header.displayWindow()) {
    make_floats(image);
  }
  std::optional<Image> shown = show_display_window(image);
  if (!shown) return;
  ExrHeader header{image.exr->header};
  header.header.dataWindow() = header.header.displayWindow();
  shown->exr = std::make_shared<ExrHeader>(std::move(header));
  image = std::move(*shown);
}

}  // namespace ctxbroker::sample_host
