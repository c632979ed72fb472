// SPDX-License-Identifier: Apache-2.0
#include "json_schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>

namespace ctxbroker {
namespace {

using Json = nlohmann::json;

// One keyword's rule: `rule` is its value, `schema` what it stands in.
using Check = bool (*)(const Json& value, const Json& rule, const Json& schema, const Json& root);

bool passes(const Json&, const Json&, const Json&, const Json&) {
  return true;  // says nothing about values, or is looked at with another keyword
}

bool type(const Json& value, const Json& rule, const Json&, const Json&) {
  if (rule == "object") return value.is_object();
  if (rule == "array") return value.is_array();
  if (rule == "string") return value.is_string();
  if (rule == "number") return value.is_number();
  if (rule == "boolean") return value.is_boolean();
  if (rule == "integer") {
    return value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
  }
  throw std::logic_error("type " + rule.dump());
}

bool constant(const Json& value, const Json& rule, const Json&, const Json&) {
  return value == rule;
}

bool enumeration(const Json& value, const Json& rule, const Json&, const Json&) {
  return std::find(rule.begin(), rule.end(), value) != rule.end();
}

bool pattern(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_string() ||
         std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>()));
}

bool minimum(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_number() || value >= rule;
}

bool exclusive_minimum(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_number() || value > rule;
}

bool maximum(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_number() || value <= rule;
}

bool least_length(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_string() || value.get<std::string>().size() >= rule.get<std::size_t>();
}

bool least_items(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_array() || value.size() >= rule.get<std::size_t>();
}

bool least_properties(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_object() || value.size() >= rule.get<std::size_t>();
}

bool items(const Json& value, const Json& rule, const Json&, const Json& root) {
  return !value.is_array() || std::all_of(value.begin(), value.end(), [&](const Json& one) {
    return is_valid(one, rule, root);
  });
}

bool required(const Json& value, const Json& rule, const Json&, const Json&) {
  return !value.is_object() || std::all_of(rule.begin(), rule.end(), [&](const Json& name) {
    return value.contains(name.get<std::string>());
  });
}

bool properties(const Json& value, const Json& rule, const Json&, const Json& root) {
  return !value.is_object() ||
         std::all_of(rule.items().begin(), rule.items().end(), [&](const auto& item) {
           return !value.contains(item.key()) || is_valid(value.at(item.key()), item.value(), root);
         });
}

bool other_properties(const Json& value, const Json& rule, const Json& schema, const Json& root) {
  if (!value.is_object()) return true;
  const Json named = schema.value("properties", Json::object());
  return std::all_of(value.items().begin(), value.items().end(), [&](const auto& item) {
    return named.contains(item.key()) || is_valid(item.value(), rule, root);
  });
}

bool property_names(const Json& value, const Json& rule, const Json&, const Json& root) {
  return !value.is_object() ||
         std::all_of(value.items().begin(), value.items().end(),
                     [&](const auto& item) { return is_valid(item.key(), rule, root); });
}

bool any_of(const Json& value, const Json& rule, const Json&, const Json& root) {
  return std::any_of(rule.begin(), rule.end(),
                     [&](const Json& one) { return is_valid(value, one, root); });
}

bool reference(const Json& value, const Json& rule, const Json&, const Json& root) {
  const auto text = rule.get<std::string>();
  if (text.rfind("#/", 0) != 0) throw std::logic_error("$ref " + text);
  return is_valid(value, root.at(Json::json_pointer(text.substr(1))), root);
}

constexpr std::array<std::pair<const char*, Check>, 21> keywords{
    {{"$schema", passes},
     {"title", passes},
     {"description", passes},
     {"$defs", passes},
     {"type", type},
     {"const", constant},
     {"enum", enumeration},
     {"pattern", pattern},
     {"minimum", minimum},
     {"exclusiveMinimum", exclusive_minimum},
     {"maximum", maximum},
     {"minLength", least_length},
     {"minItems", least_items},
     {"minProperties", least_properties},
     {"items", items},
     {"required", required},
     {"properties", properties},
     {"additionalProperties", other_properties},
     {"propertyNames", property_names},
     {"anyOf", any_of},
     {"$ref", reference}}};

}  // namespace

bool is_valid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  bool valid = true;
  for (const auto& item : schema.items()) {
    const auto known = std::find_if(keywords.begin(), keywords.end(),
                                    [&](const auto& one) { return item.key() == one.first; });
    if (known == keywords.end()) throw std::logic_error("keyword " + item.key());
    valid = known->second(value, item.value(), schema, root) && valid;
  }
  return valid;
}

}  // namespace ctxbroker
