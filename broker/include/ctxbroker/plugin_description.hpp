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
};

/// Returns "image" or "audio". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(Media media) noexcept;
/// Returns "float" or "half". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(SampleType type) noexcept;
/// Returns "kernels", "driver" or "runtime". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(CudaUse use) noexcept;
/// Returns "float", "integer", "boolean" or "choice". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(ParameterType type) noexcept;

/// One parameter of a plug-in.
struct CTXB_API ParameterDescription {
  std::string id;           ///< Unique in the plug-in and fixed for ever: "radius".
  std::string name;         ///< For people: "Radius".
  std::string unit;         ///< "px", "dB", "Hz", ...; empty for a plain number.
  std::string description;  ///< One sentence.
  ParameterType type = ParameterType::floating;
  double minimum = 0;                ///< The least value allowed.
  double maximum = 0;                ///< The greatest value allowed.
  double default_value = 0;          ///< The value of a new instance.
  std::vector<std::string> choices;  ///< The names of a choice's values.
  bool automatable = false;          ///< The host may change it while the instance is active.

  /// Reads a value as a person writes it.
  ///
  /// @param text  a number, a choice's name, or for a boolean "true", "on", "yes", "false", "off"
  ///              or "no".
  /// @return the value. Thread-safe.
  /// @throws Error  `parameter_value`, with the values allowed, when the text is not one of them.
  [[nodiscard]] double parse(std::string_view text) const;

  /// Checks a value. Thread-safe.
  ///
  /// @throws Error  `parameter_value`, with the values allowed, when `value` is not finite, is out
  ///                of range, or is not whole where it has to be.
  void check(double value) const;
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
