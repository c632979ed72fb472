// SPDX-License-Identifier: Apache-2.0
// Presets from instances and into them.
#include "ctxbroker/preset.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "plugin/access.hpp"
#include "plugin/instance.hpp"
#include "plugin/parameter_store.hpp"

namespace ctxbroker {
namespace {

using Kind = PresetRemark::Kind;

PresetValue saved(const ParameterDescription& parameter, const ParameterValue& value) {
  switch (parameter.type) {
    case ParameterType::boolean:
      return value.number() >= 0.5;
    case ParameterType::choice:
      return parameter.choices[static_cast<std::size_t>(value.number())];
    case ParameterType::colour:
    case ParameterType::point:
      return std::vector<double>(value.begin(), value.end());
    default:
      return value.number();
  }
}

std::string in_words(const PresetValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "\"" + *text + "\"";
  if (const auto* on = std::get_if<bool>(&value)) return *on ? "on" : "off";
  std::string words;
  const auto* one = std::get_if<double>(&value);
  const std::vector<double> numbers =
      one != nullptr ? std::vector<double>{*one} : std::get<std::vector<double>>(value);
  for (const double number : numbers) {
    words += (words.empty() ? "" : " ") + ParameterDescription().format(number);
  }
  return words.empty() ? "an empty list" : words;
}

// What one parameter becomes.
struct Target {
  ParameterValue value;
  std::string text;  // of a parameter that is text
};

// The numbers of a value, as many as the parameter has; none if it has another type.
std::vector<double> numbers_for(const ParameterDescription& parameter, const PresetValue& value) {
  std::vector<double> numbers;
  const auto* text = std::get_if<std::string>(&value);
  const bool is_boolean = parameter.type == ParameterType::boolean;
  if (parameter.type == ParameterType::choice) {
    if (text == nullptr) return {};
    const auto found = std::find(parameter.choices.begin(), parameter.choices.end(), *text);
    if (found == parameter.choices.end()) return {};
    return {static_cast<double>(found - parameter.choices.begin())};
  }
  if (const auto* on = std::get_if<bool>(&value); on != nullptr && is_boolean) {
    numbers = {*on ? 1.0 : 0.0};
  } else if (const auto* one = std::get_if<double>(&value); one != nullptr && !is_boolean) {
    numbers = {*one};
  } else if (const auto* several = std::get_if<std::vector<double>>(&value)) {
    numbers = *several;
  }
  const bool all = numbers.size() == number_count(parameter.type) &&
                   std::all_of(numbers.begin(), numbers.end(),
                               [](double number) { return std::isfinite(number); });
  return all ? numbers : std::vector<double>();
}

// Takes the value as it is, or the nearest one, or the default; a remark tells what was taken.
Target target_of(const ParameterDescription& parameter, const PresetValue& value,
                 std::vector<PresetRemark>& remarks) {
  Target target{parameter.default_value, parameter.default_text};
  const auto taken = [&](const std::string& instead) {
    remarks.push_back({Kind::value, parameter.id,
                       "parameter \"" + parameter.id + "\" cannot be " + in_words(value) +
                           " in this version; " + instead + " was taken"});
  };
  if (parameter.is_text()) {
    const auto* text = std::get_if<std::string>(&value);
    try {
      if (text == nullptr) throw Error(ErrorKind::parameter_value, "");
      target.text = parameter.type == ParameterType::file && !text->empty()
                        ? std::filesystem::absolute(*text).lexically_normal().string()
                        : *text;
      parameter.check_text(target.text);
    } catch (const Error&) {
      target.text = parameter.default_text;
      taken("its default \"" + target.text + "\"");
    }
    return target;
  }
  std::vector<double> numbers = numbers_for(parameter, value);
  if (numbers.empty()) {
    taken("its default " + parameter.format(target.value));
    return target;
  }
  for (double& number : numbers) {
    if (parameter.type == ParameterType::integer) number = std::round(number);
    number = std::clamp(number, parameter.minimum, parameter.maximum);
  }
  target.value = detail::value_of(numbers.data(), numbers.size());
  const auto* one = std::get_if<double>(&value);
  const auto* several = std::get_if<std::vector<double>>(&value);
  if ((one != nullptr && *one != numbers[0]) || (several != nullptr && *several != numbers)) {
    taken(parameter.format(target.value));
  }
  return target;
}

// What of the preset cannot be taken while the instance is active; empty: nothing.
std::string what_needs_idle(const PluginInstance& instance, bool with_state,
                            const std::vector<Target>& targets) {
  if (with_state && instance.has_state()) return "the plug-in's state";
  const auto& parameters = instance.description().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterDescription& parameter = parameters[i];
    if (parameter.automatable) continue;
    const bool same = parameter.is_text()
                          ? instance.text(parameter.id) == targets[i].text
                          : instance.parameter_value(parameter.id) == targets[i].value;
    if (!same) return "parameter \"" + parameter.id + "\"";
  }
  return "";
}

void tell_versions(const PluginDescription& plugin, const Preset& preset,
                   std::vector<PresetRemark>& remarks) {
  if (preset.version == plugin.version) return;
  remarks.push_back({Kind::version, "",
                     "the preset is from version " + preset.version + " of plug-in " + plugin.id +
                         "; this is version " + plugin.version});
}

void tell_unknown(const PluginDescription& plugin, const Preset& preset,
                  std::vector<PresetRemark>& remarks) {
  for (const auto& [id, value] : preset.values) {
    const auto same = [&id = id](const auto& parameter) { return parameter.id == id; };
    if (std::any_of(plugin.parameters.begin(), plugin.parameters.end(), same)) continue;
    remarks.push_back({Kind::unknown_parameter, id,
                       "plug-in " + plugin.short_name + " has no parameter \"" + id +
                           "\"; its value " + in_words(value) + " was left out"});
  }
}

void tell_state(const PluginInstance& instance, bool with_state,
                std::vector<PresetRemark>& remarks) {
  if (with_state == instance.has_state()) return;
  const std::string plugin = "plug-in " + instance.description().short_name;
  remarks.push_back({Kind::state, "",
                     with_state ? plugin + " has no state; that of the preset was left out"
                                : "the preset has no state; " + plugin + " keeps its own"});
}

}  // namespace

Preset detail::preset_of(const PluginDescription& plugin, const std::vector<ParameterValue>& values,
                         const std::vector<std::string>& texts) {
  Preset preset{plugin.id, plugin.version, {}, {}};
  for (std::size_t i = 0; i < plugin.parameters.size(); ++i) {
    const ParameterDescription& parameter = plugin.parameters[i];
    preset.values[parameter.id] =
        parameter.is_text() ? PresetValue(texts[i]) : saved(parameter, values[i]);
  }
  return preset;
}

Preset detail::values_of(const Instance& instance) {
  std::vector<ParameterValue> values;
  std::vector<std::string> texts;
  for (const ParameterDescription& parameter : instance.description().parameters) {
    const bool is_text = parameter.is_text();
    values.push_back(is_text ? ParameterValue() : instance.parameter_value(parameter.id));
    texts.push_back(is_text ? std::string(instance.text(parameter.id)) : std::string());
  }
  return preset_of(instance.description(), values, texts);
}

Preset save_preset(const PluginInstance& instance) {
  Preset preset = detail::values_of(detail::Access::of(instance));
  if (instance.has_state()) preset.state = instance.save_state();
  return preset;
}

std::vector<PresetRemark> load_preset(PluginInstance& instance, const Preset& preset) {
  std::optional<std::span<const std::byte>> state;
  if (preset.state) state = *preset.state;
  return detail::load_preset(instance, preset, state);
}

std::vector<PresetRemark> detail::load_preset(PluginInstance& instance, const Preset& preset,
                                              std::optional<std::span<const std::byte>> state) {
  const PluginDescription& plugin = instance.description();
  if (preset.plugin != plugin.id) {
    throw Error(ErrorKind::preset, "the preset is one of plug-in " + preset.plugin + ", not of " +
                                       plugin.id + "; choose another preset or load it into " +
                                       preset.plugin);
  }
  std::vector<PresetRemark> remarks;
  tell_versions(plugin, preset, remarks);
  std::vector<Target> targets;
  for (const ParameterDescription& parameter : plugin.parameters) {
    const auto found = preset.values.find(parameter.id);
    if (found != preset.values.end()) {
      targets.push_back(target_of(parameter, found->second, remarks));
      continue;
    }
    targets.push_back({parameter.default_value, parameter.default_text});
    remarks.push_back({PresetRemark::Kind::missing_parameter, parameter.id,
                       "the preset has no parameter \"" + parameter.id + "\"; its default " +
                           (parameter.is_text() ? "\"" + parameter.default_text + "\""
                                                : parameter.format(parameter.default_value)) +
                           " was taken"});
  }
  tell_unknown(plugin, preset, remarks);
  tell_state(instance, state.has_value(), remarks);
  if (instance.active()) {
    const std::string what = what_needs_idle(instance, state.has_value(), targets);
    if (!what.empty()) {
      throw Error(ErrorKind::wrong_state, "the preset cannot be loaded into plug-in " +
                                              plugin.short_name + " while it is active, because " +
                                              what + " cannot change then; deactivate it first");
    }
  }
  // The only step that can fail, and then the plug-in has changed nothing.
  if (state && instance.has_state()) Access::of(instance).load_state(*state);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const ParameterDescription& parameter = plugin.parameters[i];
    if (!parameter.is_text()) {
      // One that is not automatable has this value already if the instance is active.
      static_cast<void>(instance.try_set_parameter(i, targets[i].value));
    } else if (instance.text(parameter.id) != targets[i].text) {
      instance.set_text(parameter.id, targets[i].text);
    }
  }
  return remarks;
}

}  // namespace ctxbroker
