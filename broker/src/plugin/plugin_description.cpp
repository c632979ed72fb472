// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/plugin_description.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "ctxbroker/error.hpp"
#include "observe/enum_names.hpp"
#include "observe/number_text.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/parameter_store.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker {
namespace {

std::string number(double value) {
  return detail::general_text(value, 10);
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string allowed(const ParameterDescription& parameter) {
  if (parameter.type == ParameterType::string) return "text of at most 4096 bytes in UTF-8";
  if (parameter.type == ParameterType::file) {
    return "the path of a file" +
           (parameter.endings.empty() ? "" : " that ends with one of: " + list(parameter.endings));
  }
  if (parameter.type == ParameterType::choice) return "one of: " + list(parameter.choices);
  if (parameter.type == ParameterType::boolean) return "on or off";
  const std::string unit = parameter.unit.empty() ? "" : " " + parameter.unit;
  const char* const what = parameter.type == ParameterType::integer  ? "a whole number"
                           : parameter.type == ParameterType::point  ? "two numbers, x and y,"
                           : parameter.type == ParameterType::colour ? "red, green, blue and alpha"
                                                                     : "a number";
  return std::string(what) + (parameter.type == ParameterType::colour ? ", each" : "") + " from " +
         number(parameter.minimum) + " to " + number(parameter.maximum) + unit;
}

[[noreturn]] void refuse(const ParameterDescription& parameter, const std::string& given) {
  throw Error(ErrorKind::parameter_value, "parameter \"" + parameter.id + "\" cannot be " + given +
                                              "; it takes " + allowed(parameter));
}

// "1 0.5 0.25 1"
std::string numbers(const ParameterValue& value) {
  std::string text;
  for (const double one : value) text += (text.empty() ? "" : " ") + number(one);
  return text;
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

// "2.5 EV" becomes "2.5".
std::string_view without_unit(std::string_view text, std::string_view unit) {
  if (unit.empty() || text.size() <= unit.size() || !text.ends_with(unit)) return text;
  text.remove_suffix(unit.size());
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// As many as the type has; a colour may lack its alpha.
std::optional<ParameterValue> read_numbers(const ParameterDescription& parameter,
                                           std::string_view text) {
  const std::size_t wanted = number_count(parameter.type);
  constexpr std::string_view between = " ,:";
  std::vector<double> read;
  while (read.size() < wanted) {
    const std::size_t end = wanted == 1 ? text.npos : text.find_first_of(between);
    if (!read_number(text.substr(0, end), read.emplace_back())) return std::nullopt;
    if (end == text.npos) break;
    text.remove_prefix(std::min(text.find_first_not_of(between, end), text.size()));
    if (text.empty() || read.size() == wanted) return std::nullopt;  // something more follows
  }
  if (wanted == 4 && read.size() == 3) read.push_back(parameter.default_value[3]);
  if (read.size() != wanted) return std::nullopt;
  return detail::value_of(read.data(), wanted);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

const char* to_string(Media media) noexcept {
  return media == Media::image ? "image" : "audio";
}

const char* to_string(SampleType type) noexcept {
  return type == SampleType::float32 ? "float" : "half";
}

const char* to_string(CudaUse use) noexcept {
  constexpr std::array names{"kernels", "driver", "runtime"};
  return detail::name_of(names, use);
}

const char* to_string(ParameterType type) noexcept {
  constexpr std::array<const char*, 8> names{"float",  "integer", "boolean", "choice",
                                             "colour", "point",   "string",  "file"};
  return detail::name_of(names, type);
}

std::size_t number_count(ParameterType type) noexcept {
  constexpr std::array<std::size_t, 8> counts{1, 1, 1, 1, 4, 2, 0, 0};
  return counts[static_cast<std::size_t>(type)];
}

bool ParameterDescription::is_text() const noexcept {
  return number_count(type) == 0;
}

ParameterValue ParameterDescription::parse(std::string_view text) const {
  std::optional<ParameterValue> value;
  double one = 0;
  if ((type == ParameterType::choice && read_choice(choices, text, one)) ||
      (type == ParameterType::boolean && read_boolean(text, one))) {
    value = one;
  } else if (!is_text()) {
    // First as it is, because a plug-in's unit may look like the end of a number.
    value = read_numbers(*this, text);
    if (!value) value = read_numbers(*this, without_unit(text, unit));
  }
  if (!value) refuse(*this, detail::excerpt(text));
  check(*value);
  return *value;
}

std::string ParameterDescription::format(const ParameterValue& value) const {
  if (type == ParameterType::boolean) return value.number() >= 0.5 ? "on" : "off";
  if (type == ParameterType::choice && value.number() >= 0 &&
      value.number() < static_cast<double>(choices.size())) {
    return choices[static_cast<std::size_t>(value.number())];
  }
  return numbers(value) + (unit.empty() ? "" : " " + unit);
}

bool ParameterDescription::allows(const ParameterValue& value) const noexcept {
  const bool is_whole = type == ParameterType::integer || type == ParameterType::boolean ||
                        type == ParameterType::choice;
  return value.count() == number_count(type) &&
         std::all_of(value.begin(), value.end(), [&](double one) {
           return std::isfinite(one) && one >= minimum && one <= maximum &&
                  (!is_whole || std::trunc(one) == one);
         });
}

void ParameterDescription::check(const ParameterValue& value) const {
  if (!allows(value)) refuse(*this, numbers(value));
}

void ParameterDescription::check_text(std::string_view text) const {
  const auto ends = [&](const std::string& ending) {
    return text.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), text.end() - std::ptrdiff_t(ending.size()),
                      [](char a, char b) { return lower(a) == lower(b); });
  };
  const bool has_ending =
      text.empty() || endings.empty() || std::any_of(endings.begin(), endings.end(), ends);
  if (!is_text() || text.size() > detail::longest_text || !detail::is_clean_text(text) ||
      !has_ending) {
    refuse(*this, "\"" + detail::take_message(std::string(text.substr(0, 80)).c_str()) +
                      (text.size() > 80 ? "...\"" : "\""));
  }
}

double ParameterDescription::from_position(double position) const noexcept {
  const double bent = std::pow(std::clamp(position, 0.0, 1.0), skew);
  const double number = std::min(minimum + (maximum - minimum) * bent, maximum);
  return type == ParameterType::integer || type == ParameterType::boolean ||
                 type == ParameterType::choice
             ? std::round(number)
             : number;
}

double ParameterDescription::to_position(double number) const noexcept {
  if (!(maximum > minimum)) return 0;
  return std::pow(std::clamp((number - minimum) / (maximum - minimum), 0.0, 1.0), 1 / skew);
}

std::size_t PluginDescription::parameter_index(std::string_view parameter_id) const {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    if (parameters[index].id == parameter_id) return index;
  }
  std::string known;
  for (const auto& parameter : parameters) known += (known.empty() ? "" : ", ") + parameter.id;
  throw Error(ErrorKind::unknown_parameter,
              "plug-in " + short_name + " has no parameter " + detail::excerpt(parameter_id) +
                  "; " + (known.empty() ? "it has none" : "it has: " + known));
}

}  // namespace ctxbroker
