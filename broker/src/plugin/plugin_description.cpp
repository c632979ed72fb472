#include "ctxbroker/plugin_description.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "ctxbroker/error.hpp"

namespace ctxbroker {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string allowed(const ParameterDescription& parameter) {
  if (parameter.type == ParameterType::choice) return "one of: " + list(parameter.choices);
  if (parameter.type == ParameterType::boolean) return "on or off";
  const std::string unit = parameter.unit.empty() ? "" : " " + parameter.unit;
  return std::string(parameter.type == ParameterType::integer ? "a whole number" : "a number") +
         " from " + number(parameter.minimum) + " to " + number(parameter.maximum) + unit;
}

[[noreturn]] void refuse(const ParameterDescription& parameter, const std::string& given) {
  throw Error(ErrorKind::parameter_value, "parameter \"" + parameter.id + "\" cannot be " + given +
                                              "; it takes " + allowed(parameter));
}

// Independent of the locale, and of the whole text or none of it.
bool read_number(std::string_view text, double& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_boolean(std::string_view text, double& value) {
  for (const char* word : {"true", "on", "yes"}) {
    if (text == word) return value = 1, true;
  }
  for (const char* word : {"false", "off", "no"}) {
    if (text == word) return value = 0, true;
  }
  return false;
}

bool read_choice(const std::vector<std::string>& choices, std::string_view text, double& value) {
  for (std::size_t index = 0; index < choices.size(); ++index) {
    if (text == choices[index]) return value = static_cast<double>(index), true;
  }
  return false;
}

}  // namespace

const char* to_string(Media media) noexcept {
  return media == Media::image ? "image" : "audio";
}

const char* to_string(SampleType type) noexcept {
  return type == SampleType::float32 ? "float" : "half";
}

const char* to_string(CudaUse use) noexcept {
  switch (use) {
    case CudaUse::kernels:
      return "kernels";
    case CudaUse::driver:
      return "driver";
    case CudaUse::runtime:
      return "runtime";
  }
  return "unknown";
}

const char* to_string(ParameterType type) noexcept {
  switch (type) {
    case ParameterType::floating:
      return "float";
    case ParameterType::integer:
      return "integer";
    case ParameterType::boolean:
      return "boolean";
    case ParameterType::choice:
      return "choice";
  }
  return "unknown";
}

double ParameterDescription::parse(std::string_view text) const {
  double value = 0;
  const bool known = (type == ParameterType::choice && read_choice(choices, text, value)) ||
                     (type == ParameterType::boolean && read_boolean(text, value)) ||
                     read_number(text, value);
  if (!known) refuse(*this, "\"" + std::string(text) + "\"");
  check(value);
  return value;
}

void ParameterDescription::check(double value) const {
  const bool whole = type == ParameterType::floating || std::trunc(value) == value;
  if (!std::isfinite(value) || value < minimum || value > maximum || !whole) {
    refuse(*this, number(value));
  }
}

std::size_t PluginDescription::parameter_index(std::string_view parameter_id) const {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    if (parameters[index].id == parameter_id) return index;
  }
  std::string known;
  for (const auto& parameter : parameters) known += (known.empty() ? "" : ", ") + parameter.id;
  throw Error(ErrorKind::unknown_parameter,
              "plug-in " + short_name + " has no parameter \"" + std::string(parameter_id) +
                  "\"; " + (known.empty() ? "it has none" : "it has: " + known));
}

}  // namespace ctxbroker
