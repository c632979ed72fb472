// SPDX-License-Identifier: Apache-2.0
#include "listing.hpp"

#include <nlohmann/json.hpp>

#include "suggestion.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ParameterDescription& parameter) {
  Json json{{"id", parameter.id},
            {"name", parameter.name},
            {"type", to_string(parameter.type)},
            {"unit", parameter.unit},
            {"automatable", parameter.automatable},
            {"description", parameter.description}};
  if (parameter.is_text()) {
    json["default"] = parameter.default_text;
  } else {
    json["minimum"] = parameter.minimum;
    json["maximum"] = parameter.maximum;
    json["default"] = value_to_json(parameter.default_value);
  }
  if (!parameter.group.empty()) json["group"] = parameter.group;
  if (parameter.skew != 1) json["skew"] = parameter.skew;
  if (parameter.hidden) json["hidden"] = true;
  if (parameter.advanced) json["advanced"] = true;
  if (parameter.type == ParameterType::choice) json["choices"] = parameter.choices;
  if (!parameter.endings.empty()) json["endings"] = parameter.endings;
  return json;
}

Json to_json(const PortDescription& port) {
  Json json{{"id", port.id}, {"name", port.name}, {"optional", port.optional}};
  if (port.side_chain) json["side_chain"] = true;
  if (port.result_bytes != 0) {
    json["result_bytes"] = port.result_bytes;
    return json;
  }
  Json channels = Json::array(), samples = Json::array();
  for (std::uint32_t bit = 0; bit < 32 && port.channels != UINT32_MAX; ++bit) {
    if ((port.channels >> bit & 1) != 0) channels.push_back(bit + 1);
  }
  for (const SampleType type : {SampleType::float32, SampleType::float16}) {
    if ((port.samples & static_cast<std::uint32_t>(type)) != 0) samples.push_back(to_string(type));
  }
  json["channels"] = port.channels == UINT32_MAX ? Json("any") : channels;
  json["samples"] = samples;
  return json;
}

Json to_json(const std::vector<PortDescription>& ports) {
  Json json = Json::array();
  for (const PortDescription& port : ports) json.push_back(to_json(port));
  return json;
}

// "RGBA" of images, and of audio "1 or 2 channels"; any: "any channels".
std::string channels_text(std::uint32_t channels, Media media) {
  if (channels == UINT32_MAX) return "any channels";
  constexpr const char* image_names[] = {"grey", "grey and alpha", "RGB", "RGBA"};
  std::vector<std::string> names;
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    if ((channels >> bit & 1) == 0) continue;
    names.push_back(media == Media::image && bit < 4 ? image_names[bit] : std::to_string(bit + 1));
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  if (media == Media::image) return text;
  return text + (channels == 1 ? " channel" : " channels");
}

// "mask (grey; float or half; optional)"
std::string port_text(const PortDescription& port, Media media) {
  if (port.result_bytes != 0) {
    return port.id + " (results of " + std::to_string(port.result_bytes) + " bytes)";
  }
  std::string text = port.id + " (" + channels_text(port.channels, media);
  if (media == Media::image) {
    std::string samples;
    for (const SampleType type : {SampleType::float32, SampleType::float16}) {
      if ((port.samples & static_cast<std::uint32_t>(type)) == 0) continue;
      samples += (samples.empty() ? "" : " or ") + std::string(to_string(type));
    }
    text += "; " + samples;
  }
  if (port.side_chain) text += "; side-chain";
  if (port.optional) text += "; optional";
  return text + ")";
}

std::string ports_text(const std::vector<PortDescription>& ports, Media media) {
  std::vector<std::string> all;
  all.reserve(ports.size());
  for (const PortDescription& port : ports) all.push_back(port_text(port, media));
  return all.empty() ? "none" : join(all);
}

// "Tone: how bright. (advanced)"
std::string format_notes(const ParameterDescription& parameter) {
  return (parameter.group.empty() ? "" : parameter.group + ": ") + parameter.description +
         (parameter.advanced ? " (advanced)" : "");
}

}  // namespace

Json value_to_json(const ParameterValue& value) {
  if (value.count() == 1) return value.number();
  Json json = Json::array();
  for (const double one : value) json.push_back(one);
  return json;
}

std::string format_default(const ParameterDescription& parameter) {
  if (parameter.is_text()) {
    return parameter.default_text.empty() ? "none" : "\"" + parameter.default_text + "\"";
  }
  ParameterDescription plain = parameter;
  plain.unit.clear();  // it has a column of its own
  return plain.format(parameter.default_value);
}

std::string format_range(const ParameterDescription& parameter) {
  if (parameter.type == ParameterType::boolean) return "off, on";
  if (parameter.type == ParameterType::choice) return join(parameter.choices);
  if (parameter.is_text()) {
    return to_string(parameter.type) +
           (parameter.endings.empty() ? std::string() : " (" + join(parameter.endings) + ")");
  }
  const char* const what = parameter.type == ParameterType::colour  ? "colour, "
                           : parameter.type == ParameterType::point ? "point, "
                                                                    : "";
  return what + format_number(parameter.minimum) + " .. " + format_number(parameter.maximum);
}

std::string format_plugin(const PluginDescription& plugin) {
  std::string text = plugin.short_name + "  (" + to_string(plugin.media) + ")  " + plugin.name +
                     " " + plugin.version + (plugin.vendor.empty() ? "" : ", " + plugin.vendor) +
                     "\n  " + plugin.id + "\n";
  if (!plugin.description.empty()) text += "  " + plugin.description + "\n";
  if (plugin.needs_nvidia_driver) text += "  needs a GPU: it works with NVIDIA's driver only\n";
  if (plugin.lease_wish != LeaseKind::automatic) {
    text += std::string("  wishes a ") + to_string(plugin.lease_wish) + " lease\n";
  }
  text += "  inputs: " + ports_text(plugin.inputs, plugin.media) +
          "\n  outputs: " + ports_text(plugin.outputs, plugin.media) + "\n";
  std::vector<std::vector<std::string>> rows;
  for (const ParameterDescription& parameter : plugin.parameters) {
    if (parameter.hidden) continue;
    rows.push_back({"  ", parameter.id, format_range(parameter), parameter.unit,
                    "default " + format_default(parameter), format_notes(parameter)});
  }
  return text + format_table(std::vector<Column>(6), rows);
}

Json to_json(const PluginDescription& plugin) {
  Json parameters = Json::array();
  for (const ParameterDescription& parameter : plugin.parameters) {
    parameters.push_back(to_json(parameter));
  }
  return {{"id", plugin.id},
          {"short_name", plugin.short_name},
          {"name", plugin.name},
          {"vendor", plugin.vendor},
          {"version", plugin.version},
          {"description", plugin.description},
          {"media", to_string(plugin.media)},
          {"features", plugin.features},
          {"cuda_use", to_string(plugin.cuda_use)},
          {"needs_gpu", plugin.needs_nvidia_driver},
          {"lease_wish", to_string(plugin.lease_wish)},
          {"min_compute_capability", std::to_string(plugin.min_compute_major) + "." +
                                         std::to_string(plugin.min_compute_minor)},
          {"modules", plugin.modules},
          {"library", plugin.library_path},
          {"inputs", to_json(plugin.inputs)},
          {"outputs", to_json(plugin.outputs)},
          {"parameters", parameters}};
}

Json to_json(const ScannedLibrary& library) {
  Json plugins = Json::array();
  for (const PluginDescription& plugin : library.plugins) plugins.push_back(plugin.id);
  return {{"path", library.path.string()},       {"state", to_string(library.state)},
          {"source", to_string(library.source)}, {"reason", library.reason},
          {"strikes", library.strikes},          {"plugins", plugins}};
}

Json problems_to_json(const ScanResult& found) {
  Json json = Json::array();
  for (const ScannedLibrary* library : problems(found)) {
    json.push_back({{"library", library->path.string()},
                    {"kind", to_string(library->state)},
                    {"text", library->reason}});
  }
  return json;
}

}  // namespace ctxbroker::sample_host
