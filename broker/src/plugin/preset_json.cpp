// SPDX-License-Identifier: Apache-2.0
// Presets from JSON and to JSON. Everything is checked before anything is given back.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ctxbroker/preset.hpp"
#include "observe/whole_file.hpp"
#include "plugin/base64.hpp"
#include "plugin/document_error.hpp"
#include "plugin/foreign_text.hpp"

namespace ctxbroker {
namespace {

using json::described;
using json::Json;
using json::Location;
using json::member;
using json::required;

constexpr const char* preset_schema = "ctxbroker.preset/1";

const std::string& required_text(const Json& json, const Location& root, const char* name) {
  const Json& value = required(json, root, name);
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    member(root, name).refuse(described(value) + " is not allowed here; a text is");
  }
  return value.get_ref<const std::string&>();
}

std::vector<double> read_numbers(const Json& value, const Location& place) {
  std::vector<double> numbers;
  for (const Json& one : value) {
    if (!one.is_number()) {
      place.refuse(described(one) + " stands in the array; only numbers are allowed there");
    }
    numbers.push_back(one.get<double>());
  }
  return numbers;
}

PresetValue read_value(const Json& value, const Location& place) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return read_numbers(value, place);
  place.refuse(described(value) +
               " is no value; allowed are true, false, a number, a text and an array of numbers");
}

Json to_json(const PresetValue& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

// Everything but the schema.
Preset read_members_of(const Json& json, const Location& root) {
  Preset preset;
  preset.plugin = required_text(json, root, "plugin");
  if (!detail::is_reverse_dns(preset.plugin)) {
    member(root, "plugin")
        .refuse(json::quoted(preset.plugin) +
                " is not a plug-in id; an id looks like com.example.name");
  }
  preset.version = required_text(json, root, "version");
  const Json& values = required(json, root, "values");
  const Location place = member(root, "values");
  if (!values.is_object()) {
    place.refuse(described(values) +
                 " is not allowed here; an object whose members are parameter ids is");
  }
  for (const auto& item : values.items()) {
    preset.values[item.key()] = read_value(item.value(), member(place, item.key()));
  }
  if (json.contains("state")) {
    const Json& state = json.at("state");
    if (state.is_string()) preset.state = detail::from_base64(state.get_ref<const std::string&>());
    if (!preset.state) {
      member(root, "state")
          .refuse(
              "this is not the plug-in's state as text in base64; take an undamaged copy of "
              "the file");
    }
  }
  for (const auto& item : json.items()) {
    constexpr std::array known{"schema", "plugin", "version", "values", "state"};
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      preset.other[item.key()] = item.value().dump();
    }
  }
  return preset;
}

// Returns the text of a host's own member as JSON. Text that is not JSON becomes a string.
Json other_to_json(const std::string& text) {
  std::optional<Json> json = json::parsed(text);
  return json ? std::move(*json) : Json(text);
}

}  // namespace

Preset parse_preset(std::string_view text, const std::string& name) {
  return detail::with_errors_of(ErrorKind::preset, [&] {
    const Location root{"preset \"" + name + "\"", "$"};
    return read_members_of(json::parse_document(text, root, preset_schema), root);
  });
}

Preset read_preset(const std::filesystem::path& path) {
  const std::string text = detail::with_errors_of(
      ErrorKind::preset, [&] { return json::read_text(path, "preset", limits::preset_file); });
  return parse_preset(text, path.string());
}

std::string to_json(const Preset& preset) {
  Json values = Json::object();
  for (const auto& [id, value] : preset.values) values[id] = to_json(value);
  Json json{{"schema", preset_schema},
            {"plugin", preset.plugin},
            {"version", preset.version},
            {"values", std::move(values)}};
  if (preset.state) json["state"] = detail::to_base64(*preset.state);
  for (const auto& [name, text] : preset.other) {
    if (!json.contains(name)) json[name] = other_to_json(text);
  }
  return json.dump(2) + "\n";
}

void write_preset(const Preset& preset, const std::filesystem::path& path) {
  const std::string text = to_json(preset);
  detail::write_whole_file(path, [&](const auto& take) { take(text); });
}

}  // namespace ctxbroker
