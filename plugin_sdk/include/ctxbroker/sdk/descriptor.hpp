// SPDX-License-Identifier: Apache-2.0
/// @file
/// A plug-in's description as a compile-time constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/local.hpp"

namespace ctxbroker::sdk {

/// What a port takes and gives: CTXB_CHANNELS... and CTXB_SAMPLE_*, each combined with |.
struct Format {
  std::uint32_t channels;
  std::uint32_t samples;
};
/// RGBA as 32-bit floats.
CTXB_SDK_LOCAL inline constexpr Format rgba{CTXB_CHANNELS(4), CTXB_SAMPLE_FLOAT};
/// RGBA as floats or as halves. Job::input_pixels and output_pixels have views for it.
CTXB_SDK_LOCAL inline constexpr Format rgba_float_or_half{CTXB_CHANNELS(4),
                                                          CTXB_SAMPLE_FLOAT | CTXB_SAMPLE_HALF};
/// Images with 1 to 4 channels (grey, grey and alpha, RGB, RGBA) of floats or halves.
CTXB_SDK_LOCAL inline constexpr Format any_image{
    CTXB_CHANNELS(1) | CTXB_CHANNELS(2) | CTXB_CHANNELS(3) | CTXB_CHANNELS(4),
    CTXB_SAMPLE_FLOAT | CTXB_SAMPLE_HALF};
/// Audio with any number of channels.
CTXB_SDK_LOCAL inline constexpr Format any_audio{CTXB_CHANNELS_ANY, CTXB_SAMPLE_FLOAT};

/// Describes one port: id, name and format, and flags as CTXB_PORT_OPTIONAL. Text is kept by
/// pointer, so it must have static storage.
[[nodiscard]] constexpr ctxb_port port(const char* id, const char* name, Format format,
                                       std::uint32_t flags = 0) {
  return {sizeof(ctxb_port), flags, id, name, format.channels, format.samples, 0, 0};
}
/// Describes an output that may have the same buffer as input number `input`, from 0.
[[nodiscard]] constexpr ctxb_port in_place_port(const char* id, const char* name, Format format,
                                                std::uint32_t input = 0) {
  return {sizeof(ctxb_port), 0, id, name, format.channels, format.samples, 0, input + 1};
}
/// Describes an output of `bytes` bytes of results, at most 65,536.
[[nodiscard]] constexpr ctxb_port results_port(const char* id, const char* name,
                                               std::uint32_t bytes) {
  return {sizeof(ctxb_port), CTXB_PORT_RESULTS, id, name, 0, 0, bytes, 0};
}

namespace detail {
// Of a plug-in that says nothing about its ports.
CTXB_SDK_LOCAL inline constexpr ctxb_port image_in[] = {port("in", "Input", rgba)};
CTXB_SDK_LOCAL inline constexpr ctxb_port image_out[] = {port("out", "Output", rgba)};
CTXB_SDK_LOCAL inline constexpr ctxb_port image_out_in_place[] = {
    in_place_port("out", "Output", rgba)};
CTXB_SDK_LOCAL inline constexpr ctxb_port audio_in[] = {port("in", "Input", any_audio)};
CTXB_SDK_LOCAL inline constexpr ctxb_port audio_out[] = {port("out", "Output", any_audio)};
CTXB_SDK_LOCAL inline constexpr ctxb_port audio_out_in_place[] = {
    in_place_port("out", "Output", any_audio)};
}  // namespace detail

/// Describes a plug-in to the host. Start with image() or audio(), and add what applies:
///
///     static constexpr Descriptor descriptor =
///         Descriptor::image("com.example.blur", "Blur", "1.0.0").parameters(parameters);
///
/// Each function returns a copy with one more thing in it. All text and all tables that go in are
/// kept by pointer, so they must have static storage.
class Descriptor {
 public:
  /// Begins the description of a plug-in for images. It has one input and one output, both RGBA as
  /// floats, until you give it other ports.
  ///
  /// @param id       in reverse DNS, and fixed for ever: "com.example.exposure".
  /// @param name     for people: "Exposure".
  /// @param version  "1.2.3".
  [[nodiscard]] static constexpr Descriptor image(const char* id, const char* name,
                                                  const char* version) {
    return Descriptor(CTXB_MEDIA_IMAGE, id, name, version);
  }
  /// Begins the description of a plug-in for audio. It has one input and one output, both with any
  /// number of channels, until you give it other ports. The parameters are those of image.
  [[nodiscard]] static constexpr Descriptor audio(const char* id, const char* name,
                                                  const char* version) {
    return Descriptor(CTXB_MEDIA_AUDIO, id, name, version);
  }

  /// Says who makes the plug-in.
  [[nodiscard]] constexpr Descriptor vendor(const char* text) const {
    Descriptor copy = *this;
    copy.raw_.vendor = text;
    return copy;
  }

  /// Says in one sentence what the plug-in does.
  [[nodiscard]] constexpr Descriptor description(const char* text) const {
    Descriptor copy = *this;
    copy.raw_.description = text;
    return copy;
  }

  /// Gives words to find the plug-in by. The array ends with a null pointer.
  [[nodiscard]] constexpr Descriptor features(const char* const* words) const {
    Descriptor copy = *this;
    copy.raw_.features = words;
    return copy;
  }

  /// Gives the plug-in's parameters, as parameter_table returns them.
  template <std::size_t Count>
  [[nodiscard]] constexpr Descriptor parameters(
      const std::array<ctxb_parameter, Count>& table) const {
    Descriptor copy = *this;
    copy.raw_.parameters = table.data();
    copy.raw_.parameter_count = static_cast<std::uint32_t>(Count);
    return copy;
  }
  template <std::size_t Count>
  constexpr Descriptor parameters(const std::array<ctxb_parameter, Count>&& temporary) const =
      delete;

  /// Gives the plug-in's device code: `modules` of the header that ctxb_add_plugin generates, or an
  /// array made with module.hpp.
  template <std::size_t Count>
  [[nodiscard]] constexpr Descriptor modules(const ctxb_module (&all)[Count]) const {
    Descriptor copy = *this;
    copy.raw_.modules = all;
    copy.raw_.module_count = static_cast<std::uint32_t>(Count);
    return copy;
  }
  template <std::size_t Count>
  constexpr Descriptor modules(const ctxb_module (&&temporary)[Count]) const = delete;

  /// Gives the inputs, made with port(). Job finds them by their position.
  template <std::size_t Count>
  [[nodiscard]] constexpr Descriptor inputs(const ctxb_port (&all)[Count]) const {
    Descriptor copy = *this;
    copy.raw_.inputs = all;
    copy.raw_.input_count = static_cast<std::uint32_t>(Count);
    return copy;
  }
  template <std::size_t Count>
  constexpr Descriptor inputs(const ctxb_port (&&temporary)[Count]) const = delete;
  /// Says that the plug-in has no input, because it generates.
  [[nodiscard]] constexpr Descriptor no_inputs() const {
    Descriptor copy = *this;
    copy.raw_.inputs = nullptr;
    copy.raw_.input_count = 0;
    return copy;
  }
  /// Gives the outputs, made with port(), in_place_port() or results_port().
  template <std::size_t Count>
  [[nodiscard]] constexpr Descriptor outputs(const ctxb_port (&all)[Count]) const {
    Descriptor copy = *this;
    copy.raw_.outputs = all;
    copy.raw_.output_count = static_cast<std::uint32_t>(Count);
    return copy;
  }
  template <std::size_t Count>
  constexpr Descriptor outputs(const ctxb_port (&&temporary)[Count]) const = delete;

  /// Lets the one output of a plug-in without ports of its own have the buffer of its one input.
  /// Then process must be right when both views are the same.
  [[nodiscard]] constexpr Descriptor in_place() const {
    return outputs(raw_.media == CTXB_MEDIA_IMAGE ? detail::image_out_in_place
                                                  : detail::audio_out_in_place);
  }

  /// Sets flags: CTXB_PLUGIN_*, combined with |.
  [[nodiscard]] constexpr Descriptor flags(std::uint32_t bits) const {
    Descriptor copy = *this;
    copy.raw_.flags = bits;
    return copy;
  }

  /// Says how the plug-in uses CUDA: CTXB_CUDA_*. Default: CTXB_CUDA_KERNELS.
  [[nodiscard]] constexpr Descriptor cuda_use(std::uint32_t use) const {
    Descriptor copy = *this;
    copy.raw_.cuda_use = use;
    return copy;
  }

  /// Says which lease the plug-in would like: CTXB_LEASE_*. Default: CTXB_LEASE_AUTO.
  [[nodiscard]] constexpr Descriptor lease(std::uint32_t wish) const {
    Descriptor copy = *this;
    copy.raw_.lease = wish;
    return copy;
  }

  /// Says how many instances may process at once: CTXB_CONCURRENCY_*. Default:
  /// CTXB_CONCURRENCY_INSTANCES, any number, each on one thread at a time.
  [[nodiscard]] constexpr Descriptor concurrency(std::uint32_t kind) const {
    Descriptor copy = *this;
    copy.raw_.concurrency = kind;
    return copy;
  }

  /// Says which compute capability the plug-in needs. Default: any.
  [[nodiscard]] constexpr Descriptor least_compute_capability(std::uint32_t major,
                                                              std::uint32_t minor) const {
    Descriptor copy = *this;
    copy.raw_.min_compute_major = major;
    copy.raw_.min_compute_minor = minor;
    return copy;
  }

  /// The C descriptor.
  [[nodiscard]] constexpr const ctxb_plugin_descriptor& raw() const& { return raw_; }
  [[nodiscard]] constexpr ctxb_plugin_descriptor raw() const&& { return raw_; }

 private:
  constexpr Descriptor(std::uint32_t media, const char* id, const char* name, const char* version)
      : raw_{} {
    raw_.size = sizeof(ctxb_plugin_descriptor);
    raw_.media = media;
    raw_.id = id;
    raw_.name = name;
    raw_.vendor = "";
    raw_.version = version;
    raw_.description = "";
    raw_.cuda_use = CTXB_CUDA_KERNELS;
    raw_.lease = CTXB_LEASE_AUTO;
    raw_.concurrency = CTXB_CONCURRENCY_INSTANCES;
    const bool is_image = media == CTXB_MEDIA_IMAGE;
    raw_.inputs = is_image ? detail::image_in : detail::audio_in;
    raw_.outputs = is_image ? detail::image_out : detail::audio_out;
    raw_.input_count = raw_.output_count = 1;
  }

  ctxb_plugin_descriptor raw_;
};

}  // namespace ctxbroker::sdk
