// SPDX-License-Identifier: Apache-2.0
/// @file
/// Presets: the values of a plug-in's parameters and its state, to be kept in a file.
///
///     write_preset(save_preset(instance), "soft.json");
///     ...
///     for (const PresetRemark& remark : load_preset(instance, read_preset("soft.json"))) {
///       show(remark.text);
///     }
///
/// A preset names its plug-in, the plug-in's version, parameters by their ids and choices by their
/// names. So it survives an upgrade of the plug-in that adds, removes or reorders any of them.
/// docs/preset.schema.json describes the file.
///
/// A preset can be read, held and written without its plug-in. Nothing of it is lost then, so a
/// host can save a session again whose plug-ins are not there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

class PluginInstance;

/// A value in a preset: a boolean; a number; a choice's name or a text; or the numbers of a point
/// or a colour.
using PresetValue = std::variant<bool, double, std::string, std::vector<double>>;

/// What one instance was set to.
struct Preset {
  std::string plugin;                         ///< The plug-in's id.
  std::string version;                        ///< Its version when the preset was saved.
  std::map<std::string, PresetValue> values;  ///< By the parameters' ids.
  /// What the plug-in itself remembers. Nothing: it remembers nothing beyond its parameters.
  std::optional<std::vector<std::byte>> state;
  /// Members that this version does not know, by their names, as JSON. They are written back.
  std::map<std::string, std::string> other{};
};

/// One thing that load_preset could not do exactly as the preset says.
struct PresetRemark {
  /// What it is about.
  enum class Kind {
    version,            ///< Another version of the plug-in saved the preset.
    unknown_parameter,  ///< The plug-in does not have this parameter. The value was left out.
    missing_parameter,  ///< The preset does not have this parameter. It has its default now.
    value,  ///< The value is not allowed any more. The nearest or the default was taken.
    state,  ///< The preset has a state and the plug-in has none, or the other way round.
  };
  Kind kind = Kind::value;
  std::string parameter;  ///< The parameter's id; empty for version and state.
  std::string text;       ///< One sentence for people.
};

/// Returns what the instance is set to now, with the plug-in's state.
///
/// @throws Error  `wrong_state` if the plug-in has a state and the instance is active;
///                `plugin_failed`.
/// A main call, as those of PluginInstance.
[[nodiscard]] CTXB_API Preset save_preset(const PluginInstance& instance);

/// Sets all parameters and the state of an instance.
///
/// A parameter that the preset lacks gets its default. A number out of range becomes the nearest
/// one that is allowed. A choice that is gone, or a value of another type, becomes the default. A
/// plug-in with a state keeps it when the preset has none.
///
/// While an instance is active, it accepts only a preset that changes nothing but automatable
/// parameters.
///
/// @return what differs from the preset. Empty: nothing.
/// @throws Error  `preset` when it is another plug-in's; `wrong_state` when the instance has to be
///                deactivated first; `plugin_failed` when the plug-in refuses its state. Nothing
///                has changed after an exception.
/// A main call, as those of PluginInstance.
CTXB_API std::vector<PresetRemark> load_preset(PluginInstance& instance, const Preset& preset);

/// Reads a preset from JSON. Thread-safe.
///
/// @param text  JSON as to_json writes it.
/// @param name  what the error calls it.
/// @throws Error  `preset` when the text is not a whole preset, with the place and what is allowed
///                there.
[[nodiscard]] CTXB_API Preset parse_preset(std::string_view text,
                                           const std::string& name = "preset");
/// Reads a preset file. Thread-safe.
///
/// @throws Error  `preset`, as parse_preset, or when the file cannot be read.
[[nodiscard]] CTXB_API Preset read_preset(const std::filesystem::path& path);

/// Returns the preset as JSON with the schema "ctxbroker.preset/1". Thread-safe.
[[nodiscard]] CTXB_API std::string to_json(const Preset& preset);
/// Writes a preset file. After an error, a file that was there before is unchanged. Thread-safe.
///
/// @throws Error  `output_file`.
CTXB_API void write_preset(const Preset& preset, const std::filesystem::path& path);

}  // namespace ctxbroker
