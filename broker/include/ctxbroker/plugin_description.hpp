// SPDX-License-Identifier: Apache-2.0
/// @file
/// A plug-in's descriptor as the host reads it. These are checked copies, which outlive the
/// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/parameter_value.hpp"

namespace ctxbroker {

/// What a plug-in processes.
enum class Media {
  image,  ///< Pixels, row by row.
  audio,  ///< Samples, one float each, channel by channel.
};

/// How a sample is stored.
enum class SampleType : std::uint32_t {
  float32 = 1,  ///< CTXB_SAMPLE_FLOAT.
  float16 = 2,  ///< CTXB_SAMPLE_HALF. Images only.
};

/// How a plug-in uses CUDA.
enum class CudaUse {
  kernels,  ///< Through the broker only.
  driver,   ///< It calls the driver API itself.
  runtime,  ///< It calls the runtime API or libraries on it.
};

/// What values a parameter takes.
enum class ParameterType {
  floating,  ///< Any number within the range.
  integer,   ///< A whole number within the range.
  boolean,   ///< 0 or 1.
  choice,    ///< The index of one of ParameterDescription::choices.
  colour,    ///< Red, green, blue and alpha, each within the range. Linear light, straight alpha.
  point,     ///< x and y, each within the range.
  string,    ///< Text.
  file,      ///< The path of a file. It is text too; empty: no file.
};

/// Returns "image" or "audio". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(Media media) noexcept;
/// Returns "float" or "half". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(SampleType type) noexcept;
/// Returns "kernels", "driver" or "runtime". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(CudaUse use) noexcept;
/// Returns "float", "integer", "boolean", "choice", "colour", "point", "string" or "file". Static
/// text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(ParameterType type) noexcept;
/// Returns how many numbers a value of this type has: 1, 2 or 4; 0 for text. Thread-safe.
[[nodiscard]] CTXB_API std::size_t number_count(ParameterType type) noexcept;

/// One parameter of a plug-in. Its functions are thread-safe.
struct CTXB_API ParameterDescription {
  std::string id;           ///< Unique in the plug-in and fixed for ever: "radius".
  std::string name;         ///< For people: "Radius".
  std::string unit;         ///< "px", "dB", "Hz", ...; empty for a plain number.
  std::string description;  ///< One sentence.
  std::string group;        ///< For people: parameters of one group belong together. Empty: none.
  ParameterType type = ParameterType::floating;
  double minimum = 0;                ///< The least that each number may be.
  double maximum = 0;                ///< The greatest that each number may be.
  ParameterValue default_value = 0;  ///< The value of a new instance.
  double skew = 1;                   ///< How a slider moves: see from_position.
  std::vector<std::string> choices;  ///< The names of a choice's values.
  std::string default_text;          ///< The text of a new instance, for `string` and `file`.
  std::vector<std::string> endings;  ///< Of a file's name: ".wav". None: any file.
  bool automatable = false;          ///< The host may change it while the instance is active.
  bool hidden = false;               ///< People should not see it. Save it as any other.
  bool advanced = false;             ///< For people who ask for more.

  /// Whether the value is text: `string` and `file`.
  [[nodiscard]] bool is_text() const noexcept;

  /// Reads a value as a person writes it.
  ///
  /// @param text  a number, which its unit may follow; a choice's name; for a boolean "true", "on",
  ///              "yes", "false", "off" or "no"; for a point or a colour its numbers, with spaces,
  ///              ',' or ':' between them. A colour without alpha has the default's.
  /// @return the value.
  /// @throws Error  `parameter_value`, with the values allowed, when the text is not one of them,
  ///                and for a parameter that is text.
  [[nodiscard]] ParameterValue parse(std::string_view text) const;
  /// Prints a value for people, with its unit: "0.7 EV". parse reads it. PluginInstance::to_text
  /// lets the plug-in print it.
  [[nodiscard]] std::string format(const ParameterValue& value) const;

  /// Whether the value has as many numbers as the type, and all of them are finite, in the range,
  /// and whole where they have to be. Does not allocate.
  [[nodiscard]] bool allows(const ParameterValue& value) const noexcept;
  /// Checks a value.
  ///
  /// @throws Error  `parameter_value`, with the values allowed, when allows(value) is false.
  void check(const ParameterValue& value) const;
  /// Checks the text of a `string` or `file`.
  ///
  /// @throws Error  `parameter_value` when the text has more than 4096 bytes, is not UTF-8 or has
  ///                control characters, when a file's name has another ending, and for a parameter
  ///                that is not text.
  void check_text(std::string_view text) const;

  /// Returns the number for a slider's position from 0 to 1: minimum + (maximum - minimum) *
  /// pow(position, skew). It is rounded for types with whole numbers.
  [[nodiscard]] double from_position(double position) const noexcept;
  /// Returns the slider's position, from 0 to 1, for a number.
  [[nodiscard]] double to_position(double number) const noexcept;
};

/// One input or output of a plug-in.
struct PortDescription {
  std::string id;           ///< Unique among the inputs or the outputs, and fixed for ever: "mask".
  std::string name;         ///< For people: "Mask".
  bool optional = false;    ///< It may stay unconnected.
  bool side_chain = false;  ///< An audio input that is listened to and is not part of the mix.
  /// For each number of channels of a pixel or of audio that it takes, bit number - 1. 0 for
  /// results.
  std::uint32_t channels = 0;
  std::uint32_t samples = 0;  ///< The SampleTypes that it takes, combined with |. 0 for results.
  /// The bytes of an analyser's results. 0: the port is an image or audio.
  std::uint32_t result_bytes = 0;
  int in_place = -1;  ///< The input whose buffer this output may have; -1: none.
};

/// One plug-in of a library.
struct CTXB_API PluginDescription {
  std::string id;                     ///< In reverse DNS and fixed for ever: "com.example.blur".
  std::string name;                   ///< For people: "Blur".
  std::string vendor;                 ///< Who makes it.
  std::string version;                ///< "1.2.3".
  std::string description;            ///< One sentence.
  std::string short_name;             ///< The last part of the id: "blur".
  std::vector<std::string> features;  ///< Words to find it by.
  Media media = Media::image;
  CudaUse cuda_use = CudaUse::kernels;
  LeaseKind lease_wish = LeaseKind::automatic;  ///< The lease that it would like.
  std::uint32_t flags = 0;                      ///< CTXB_PLUGIN_* of plugin.h.
  /// It cannot work on the software device. Broker::create refuses it there with `needs_gpu`.
  bool needs_nvidia_driver = false;
  int min_compute_major = 0;  ///< The least compute capability that it needs; 0.0: any.
  int min_compute_minor = 0;
  std::vector<PortDescription> inputs;   ///< None: it generates.
  std::vector<PortDescription> outputs;  ///< At least one.
  std::vector<ParameterDescription> parameters;
  std::vector<std::string> modules;  ///< The names of its modules.
  std::string library_path;          ///< The file that it comes from.

  /// Finds a parameter.
  ///
  /// @return its index in `parameters`. Thread-safe.
  /// @throws Error  `unknown_parameter`, with the ids that there are.
  [[nodiscard]] std::size_t parameter_index(std::string_view parameter_id) const;
};

}  // namespace ctxbroker
