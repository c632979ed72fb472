// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "files/exr_file.hpp"
#include "files/image_file.hpp"
#include "files/input_file.hpp"
#include "files/parallel.hpp"
#include "logging.hpp"
#include "results_file.hpp"

namespace ctxbroker::sample_host {

namespace {

std::uint32_t channels_of(const PlannedPort& port) {
  return port.channels == 0 ? 4 : port.channels;
}

FileFacts facts(const GraphPlan& plan, const PlannedPort& port, const std::filesystem::path& path,
                const Image& image, const ImageFormat& format) {
  FileFacts file;
  if (!plan.is_row()) file.name = port.name;
  file.path = path.string();
  file.format = to_string(format);
  file.width = image.width;
  file.height = image.height;
  return file;
}

// Calls convert(pixel, samples) for every pixel of `channels` samples, on all cores.
template <typename Pixel, typename Sample, typename Convert>
void for_each_pixel(std::uint32_t width, std::uint32_t height, Pixel* pixels, Sample* samples,
                    std::uint32_t channels, const Convert& convert) {
  for_each_band(height, [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first * width; i < end * width; ++i) {
      convert(pixels + 4 * i, samples + channels * i);
    }
  });
}

// Grey, grey and alpha, or RGB, as files have them.
std::vector<float> narrow(const Image& image, std::uint32_t channels) {
  std::vector<float> samples(std::size_t{image.width} * image.height * channels);
  for_each_pixel(image.width, image.height, image.pixels.data(), samples.data(), channels,
                 [channels](const float* pixel, float* sample) {
                   if (channels == 3) {
                     std::copy_n(pixel, 3, sample);
                   } else {
                     sample[0] = luminance(pixel);
                     if (channels == 2) sample[1] = pixel[3];
                   }
                 });
  return samples;
}

void widen(const std::vector<float>& samples, std::uint32_t channels, Image& image) {
  for_each_pixel(image.width, image.height, image.pixels.data(), samples.data(), channels,
                 [channels](float* pixel, const float* sample) {
                   for (std::size_t c = 0; c < 3; ++c) pixel[c] = sample[channels == 3 ? c : 0];
                   pixel[3] = channels == 2 ? sample[1] : 1.0F;
                 });
}

void* samples_of(Image& image) {
  return image.halves.empty() ? static_cast<void*>(image.pixels.data())
                              : static_cast<void*>(image.halves.data());
}

// Pixels of several images belong together where viewers show them at the same place.
void check_sizes(const Frame& frame, const std::vector<Image>& images) {
  for (std::size_t i = 1; i < images.size(); ++i) {
    if (images[i].width == images[0].width && images[i].height == images[0].height) continue;
    const auto size = [&](std::size_t which) {
      return std::to_string(images[which].width) + " x " + std::to_string(images[which].height);
    };
    throw input_failure(frame.inputs[i],
                        "has " + size(i) + " pixels, and \"" + frame.inputs[0].string() +
                            "\" has " + size(0) +
                            "; the inputs of a graph have one size, so scale one of them first");
  }
}

// A plug-in gets both at once.
void check_size(std::int64_t number, const Image& own, const Image& other) {
  if (own.width == other.width && own.height == other.height) return;
  const auto text = [](const Image& image) {
    return std::to_string(image.width) + " x " + std::to_string(image.height) + " pixels";
  };
  throw Failure(ExitCode::input, "it has " + text(own) + ", and frame " + std::to_string(number) +
                                     " has " + text(other) + "; a plug-in needs both at once, so " +
                                     "they have to be equal in size");
}

void check_channels(const PlannedPort& port, const GraphPlan& plan) {
  if (channels_of(port) <= 4) return;
  throw Failure(ExitCode::usage, plan.document + ": \"" + port.name + "\" has " +
                                     std::to_string(port.channels) +
                                     " channels; images have 1 (grey), 2 (grey and alpha), 3 (RGB) "
                                     "or 4 (RGBA)");
}

}  // namespace

std::vector<std::uint32_t> image_channels(const std::vector<PlannedPort>& ports) {
  std::vector<std::uint32_t> channels;
  channels.reserve(ports.size());
  for (const PlannedPort& port : ports)
    channels.push_back(port.is_results() ? 0 : channels_of(port));
  return channels;
}

PixelBytes pixel_bytes(const GraphPlan& plan, SampleType samples) {
  const std::size_t sample = samples == SampleType::float16 ? 2 : 4;
  PixelBytes bytes;
  for (const PlannedPort& port : plan.inputs) bytes.inputs.push_back(channels_of(port) * sample);
  for (const PlannedPort& port : plan.outputs) bytes.outputs.push_back(channels_of(port) * sample);
  return bytes;
}

namespace {

// Returns an image that outputs are like if the graph has no inputs.
Image blank(const Generated& generated) {
  Image image;
  image.width = generated.width;
  image.height = generated.height;
  image.pixels.resize(std::size_t{image.width} * image.height * 4);
  image.format.depth = 16;
  return image;
}

}  // namespace

Picture::Picture(const Frame& frame, const GraphPlan& plan, const Options& options, bool halves,
                 FrameStore& store)
    : frame_(&frame), plan_(&plan) {
  for (const PlannedPort& port : plan.inputs) check_channels(port, plan);
  for (const PlannedPort& port : plan.outputs) check_channels(port, plan);
  for (std::size_t i = 0; i < frame.inputs.size(); ++i) {
    inputs_.push_back(store.read(frame, i));
    if (!halves) make_floats(inputs_.back());
    if (frame.inputs.size() > 1) fill_display_window(inputs_.back());
  }
  check_sizes(frame, inputs_);
  if (plan.inputs.empty()) inputs_.push_back(blank(plan.generated));
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    input_facts_.push_back(
        facts(plan, plan.inputs[i], frame.inputs[i], inputs_[i], inputs_[i].format));
  }
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlannedPort& port = plan.outputs[i];
    const Image& like = inputs_[port.like];
    const std::filesystem::path& path = frame.outputs[i];
    if (port.is_results()) {
      formats_.emplace_back();
      output_facts_.push_back({port.name, path.string(), "results", 0, 0, 1});
      continue;
    }
    ImageFormat format =
        choose_image_format(like.format, path, port.depth != 0 ? port.depth : options.depth);
    if (channels_of(port) != 4) format.channels = static_cast<int>(port.channels);
    formats_.push_back(format);
    output_facts_.push_back(facts(plan, port, path, like, format));
  }
  if (!can_be_halves()) use_floats();
  narrow_inputs_.resize(inputs_.size());
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const std::uint32_t channels = channels_of(plan.inputs[i]);
    if (channels != 4) narrow_inputs_[i] = narrow(inputs_[i], channels);
  }
}

void Picture::read_neighbours(const std::vector<JobInput>& needed, FrameStore& store) {
  if (!needed_.empty() || needed.size() == plan_->inputs.size()) return;
  std::vector<Image> images(needed.size());
  bool all_halves = samples() == SampleType::float16;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::size_t input = needed[i].input;
    const std::int64_t number = store.neighbour(*frame_, input, needed[i].frame);
    if (needed[i].frame == 0) continue;
    if (number == frame_->position) {
      images[i] = inputs_[input];
      continue;
    }
    images[i] = store.read_number(number, input);
    if (inputs_.size() > 1) fill_display_window(images[i]);
    check_size(number, inputs_[input], images[i]);
    all_halves = all_halves && !images[i].halves.empty();
  }
  neighbours_ = std::move(images);
  needed_ = needed;
  if (!all_halves) use_floats();
  narrow_neighbours_.resize(needed.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::uint32_t channels = channels_of(plan_->inputs[needed[i].input]);
    if (channels != 4 && needed[i].frame != 0) {
      narrow_neighbours_[i] = narrow(neighbours_[i], channels);
    }
  }
}

bool Picture::can_be_halves() const {
  const auto is_wide = [](const PlannedPort& port) { return channels_of(port) == 4; };
  return std::all_of(plan_->inputs.begin(), plan_->inputs.end(), is_wide) &&
         std::all_of(plan_->outputs.begin(), plan_->outputs.end(), is_wide) &&
         std::none_of(plan_->outputs.begin(), plan_->outputs.end(),
                      [](const PlannedPort& port) { return port.is_results(); }) &&
         std::all_of(formats_.begin(), formats_.end(),
                     [](const ImageFormat& format) {
                       return format.type == ImageType::exr && format.depth == 16;
                     }) &&
         std::none_of(inputs_.begin(), inputs_.end(),
                      [](const Image& image) { return image.halves.empty(); });
}

SampleType Picture::samples() const noexcept {
  return inputs_.front().halves.empty() ? SampleType::float32 : SampleType::float16;
}

void Picture::use_floats() {
  for (Image& image : inputs_) make_floats(image);
  for (Image& image : neighbours_) make_floats(image);
}

void Picture::open_outputs() {
  for (std::size_t i = 0; i < frame_->outputs.size(); ++i) {
    files_.push_back(plan_->outputs[i].is_results()
                         ? nullptr
                         : std::make_unique<OutputFile>(frame_->outputs[i]));
  }
}

JobBuffers Picture::buffers(const std::vector<std::uint32_t>& result_bytes, bool keeps_inputs) {
  const bool is_half = samples() == SampleType::float16;
  JobBuffers buffers;
  const auto add = [&](Image& image, Samples& narrow_samples) {
    buffers.inputs.push_back(narrow_samples.empty() ? samples_of(image) : narrow_samples.data());
  };
  for (std::size_t i = 0; i < needed_.size(); ++i) {
    const std::size_t input = needed_[i].input;
    const bool is_own = needed_[i].frame == 0;
    add(is_own ? inputs_[input] : neighbours_[i],
        is_own ? narrow_inputs_[input] : narrow_neighbours_[i]);
  }
  for (std::size_t i = 0; needed_.empty() && i < plan_->inputs.size(); ++i) {
    add(inputs_[i], narrow_inputs_[i]);
  }
  narrow_outputs_.resize(plan_->outputs.size());
  std::vector<bool> is_taken(inputs_.size());
  for (std::size_t i = 0; i < plan_->outputs.size(); ++i) {
    const PlannedPort& port = plan_->outputs[i];
    if (result_bytes[i] != 0) {
      narrow_outputs_[i].resize(words_of(result_bytes[i]));
      outputs_.emplace_back();
      continue;
    }
    Image& like = inputs_[port.like];
    const std::size_t size = std::size_t{like.width} * like.height * 4;
    // The graph reads its inputs before it writes an output, so one of them takes an input's
    // memory, unless the job may have to run again.
    if (!is_taken[port.like] && !keeps_inputs) {
      is_taken[port.like] = true;
      Image without_samples{like.width, like.height, {}, {}, like.format, like.metadata, like.exr};
      outputs_.push_back(std::exchange(like, std::move(without_samples)));
    } else {
      outputs_.push_back(like);
      outputs_.back().halves.resize(is_half ? size : 0);
      outputs_.back().pixels.resize(is_half ? 0 : size);
    }
    if (const std::uint32_t channels = channels_of(port); channels != 4) {
      narrow_outputs_[i].resize(std::size_t{like.width} * like.height * channels);
    }
  }
  for (std::size_t i = 0; i < plan_->outputs.size(); ++i) {
    buffers.outputs.push_back(narrow_outputs_[i].empty() ? samples_of(outputs_[i])
                                                         : narrow_outputs_[i].data());
  }
  return buffers;
}

void Picture::write(const Options& options) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (files_[i] == nullptr) continue;
    if (!narrow_outputs_[i].empty()) {
      widen(narrow_outputs_[i], channels_of(plan_->outputs[i]), outputs_[i]);
    }
    write_image_file(*files_[i], outputs_[i], formats_[i], options.png_compression);
  }
  // All of them are there or none, except if the system fails in between.
  for (const auto& file : files_) {
    if (file != nullptr) file->commit();
  }
}

}  // namespace ctxbroker::sample_host
