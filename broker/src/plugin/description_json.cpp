// SPDX-License-Identifier: Apache-2.0
#include "plugin/description_json.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"
#include "plugin/descriptor_reader.hpp"

namespace ctxbroker::detail {
namespace {

using json::described;
using json::Json;
using json::Location;

constexpr std::size_t most_described = 1024;  // of one library, as LoadedLibrary has it
constexpr std::size_t longest_array = 4096;   // of one array

// ---- Writing -------------------------------------------------------------------------------

// Adds the member unless it has its usual value.
template <typename Value>
void add(Json& object, const char* name, const Value& value, const Value& usual) {
  if (value != usual) object[name] = value;
}

Json port_to_json(const PortDescription& port) {
  Json object{{"id", port.id}, {"name", port.name}};
  add(object, "optional", port.optional, false);
  add(object, "side_chain", port.side_chain, false);
  add(object, "channels", port.channels, 0U);
  add(object, "samples", port.samples, 0U);
  add(object, "result_bytes", port.result_bytes, 0U);
  add(object, "in_place", port.in_place, -1);
  return object;
}

Json parameter_to_json(const ParameterDescription& parameter) {
  const std::string none;
  const std::vector<std::string> nothing;
  Json object{{"id", parameter.id}, {"name", parameter.name}, {"type", to_string(parameter.type)}};
  add(object, "unit", parameter.unit, none);
  add(object, "description", parameter.description, none);
  add(object, "group", parameter.group, none);
  if (parameter.is_text()) {
    add(object, "default_text", parameter.default_text, none);
  } else {
    object["minimum"] = parameter.minimum;
    object["maximum"] = parameter.maximum;
    object["default"] =
        std::vector<double>(parameter.default_value.begin(), parameter.default_value.end());
  }
  add(object, "skew", parameter.skew, 1.0);
  add(object, "choices", parameter.choices, nothing);
  add(object, "endings", parameter.endings, nothing);
  add(object, "automatable", parameter.automatable, false);
  add(object, "hidden", parameter.hidden, false);
  add(object, "advanced", parameter.advanced, false);
  return object;
}

template <typename Element, typename Write>
Json array_to_json(const std::vector<Element>& elements, const Write& write) {
  Json array = Json::array();
  for (const Element& element : elements) array.push_back(write(element));
  return array;
}

Json plugin_to_json(const PluginDescription& plugin) {
  Json object{{"id", plugin.id},
              {"name", plugin.name},
              {"vendor", plugin.vendor},
              {"version", plugin.version},
              {"description", plugin.description},
              {"media", to_string(plugin.media)},
              {"cuda_use", to_string(plugin.cuda_use)}};
  add(object, "features", plugin.features, {});
  add(object, "lease", std::string(to_string(plugin.lease_wish)), std::string("auto"));
  add(object, "flags", plugin.flags, 0U);
  add(object, "min_compute_major", plugin.min_compute_major, 0);
  add(object, "min_compute_minor", plugin.min_compute_minor, 0);
  object["inputs"] = array_to_json(plugin.inputs, port_to_json);
  object["outputs"] = array_to_json(plugin.outputs, port_to_json);
  object["parameters"] = array_to_json(plugin.parameters, parameter_to_json);
  add(object, "modules", plugin.modules, {});
  return object;
}

// ---- Reading -------------------------------------------------------------------------------

// The reader's place in the document. Its text is made for an error only, because there are many
// places.
struct JsonPlace {
  const JsonPlace* outer;
  const char* member;  // null: the element `index` of an array
  std::size_t index;
  const Location* root;  // of the outermost place only

  Location location() const {
    if (outer == nullptr) return *root;
    return member != nullptr ? json::member(outer->location(), member)
                             : json::element(outer->location(), index);
  }
  [[noreturn]] void refuse(const std::string& why) const { location().refuse(why); }
};

JsonPlace within(const JsonPlace& outer, const char* member) {
  return {&outer, member, 0, nullptr};
}

// A descriptor in the form in which libraries give theirs. It owns what the pointers point to.
class ForeignDescriptor {
 public:
  ForeignDescriptor(const Json& plugin, const JsonPlace& place) {
    check_object(plugin, place);
    descriptor_.size = sizeof descriptor_;
    descriptor_.id = text(plugin, "id", place);
    descriptor_.name = text(plugin, "name", place);
    descriptor_.vendor = text(plugin, "vendor", place);
    descriptor_.version = text(plugin, "version", place);
    descriptor_.description = text(plugin, "description", place);
    descriptor_.features = texts(plugin, "features", place);
    descriptor_.media = code<Media>(plugin, "media", place, 2) + CTXB_MEDIA_IMAGE;
    descriptor_.cuda_use = code<CudaUse>(plugin, "cuda_use", place, 3) + CTXB_CUDA_KERNELS;
    descriptor_.lease =
        plugin.contains("lease") ? code<LeaseKind>(plugin, "lease", place, 5) : CTXB_LEASE_AUTO;
    descriptor_.flags = number(plugin, "flags", place);
    descriptor_.min_compute_major = number(plugin, "min_compute_major", place);
    descriptor_.min_compute_minor = number(plugin, "min_compute_minor", place);
    read_all(plugin, "inputs", place, inputs_, &ForeignDescriptor::port);
    read_all(plugin, "outputs", place, outputs_, &ForeignDescriptor::port);
    read_all(plugin, "parameters", place, parameters_, &ForeignDescriptor::parameter);
    read_modules(plugin, place);
    descriptor_.inputs = inputs_.data();
    descriptor_.outputs = outputs_.data();
    descriptor_.parameters = parameters_.data();
    descriptor_.modules = modules_.data();
    descriptor_.input_count = static_cast<std::uint32_t>(inputs_.size());
    descriptor_.output_count = static_cast<std::uint32_t>(outputs_.size());
    descriptor_.parameter_count = static_cast<std::uint32_t>(parameters_.size());
    descriptor_.module_count = static_cast<std::uint32_t>(modules_.size());
  }

  const ctxb_plugin_descriptor& get() const noexcept { return descriptor_; }

 private:
  static void check_object(const Json& value, const JsonPlace& place) {
    if (!value.is_object()) {
      place.refuse(described(value) + " is not allowed here; an object is");
    }
  }

  static const Json& required(const Json& object, const char* name, const JsonPlace& place) {
    const auto found = object.find(name);
    if (found == object.end()) {
      place.refuse(std::string("the member \"") + name + "\" is missing");
    }
    return *found;
  }

  const char* keep(const Json& value, const JsonPlace& place) {
    if (!value.is_string()) place.refuse(described(value) + " is not allowed here; a text is");
    const std::string& given = value.get_ref<const std::string&>();
    // A text of a library ends there, so it would be read as another one.
    if (given.find('\0') != std::string::npos) place.refuse("the text has a character 0 in it");
    return given.c_str();  // the document outlives the descriptor
  }

  const char* text(const Json& object, const char* name, const JsonPlace& place) {
    return keep(required(object, name, place), within(place, name));
  }

  const char* optional_text(const Json& object, const char* name, const JsonPlace& place) {
    return object.contains(name) ? text(object, name, place) : "";
  }

  const char* const* texts(const Json& object, const char* name, const JsonPlace& place) {
    const auto found = object.find(name);
    if (found == object.end()) return nullptr;
    const JsonPlace inner = within(place, name);
    if (!found->is_array()) inner.refuse(described(*found) + " is not allowed here; an array is");
    if (found->size() > longest_array) inner.refuse("the array has too many elements");
    std::vector<const char*>& list = lists_.emplace_back();
    for (const Json& one : *found) list.push_back(keep(one, inner));
    list.push_back(nullptr);
    return list.data();
  }

  static std::uint32_t number(const Json& object, const char* name, const JsonPlace& place) {
    const auto found = object.find(name);
    if (found == object.end()) return 0;
    const auto value = json::whole_number(*found, UINT32_MAX);
    if (!value) {
      within(place, name)
          .refuse(described(*found) + " is not allowed here; a whole number up to 4294967295 is");
    }
    return static_cast<std::uint32_t>(*value);
  }

  static double real(const Json& value, const JsonPlace& place) {
    if (!value.is_number()) place.refuse(described(value) + " is not allowed here; a number is");
    return value.get<double>();
  }

  static bool flag(const Json& object, const char* name, const JsonPlace& place) {
    const auto found = object.find(name);
    if (found == object.end()) return false;
    if (!found->is_boolean()) {
      within(place, name).refuse(described(*found) + " is not allowed here; true and false are");
    }
    return found->get<bool>();
  }

  // The number of the value whose name stands there.
  template <typename Value>
  static std::uint32_t code(const Json& object, const char* name, const JsonPlace& place,
                            std::uint32_t count) {
    const Json& given = required(object, name, place);
    std::string allowed;
    for (std::uint32_t one = 0; one < count; ++one) {
      const char* const known = to_string(static_cast<Value>(one));
      if (given == known) return one;
      allowed += (allowed.empty() ? "" : ", ") + json::quoted(known);
    }
    within(place, name).refuse(described(given) + " is not allowed here; allowed are " + allowed);
  }

  template <typename Struct>
  void read_all(const Json& object, const char* name, const JsonPlace& place,
                std::vector<Struct>& structs,
                Struct (ForeignDescriptor::*read)(const Json&, const JsonPlace&)) {
    const Json& array = required(object, name, place);
    const JsonPlace inner = within(place, name);
    if (!array.is_array()) inner.refuse(described(array) + " is not allowed here; an array is");
    if (array.size() > longest_array) inner.refuse("the array has too many elements");
    structs.reserve(array.size());
    for (std::size_t index = 0; index < array.size(); ++index) {
      structs.push_back((this->*read)(array[index], JsonPlace{&inner, nullptr, index, nullptr}));
    }
  }

  ctxb_port port(const Json& object, const JsonPlace& place) {
    check_object(object, place);
    ctxb_port port{};
    port.size = sizeof port;
    port.result_bytes = number(object, "result_bytes", place);
    port.flags = (flag(object, "optional", place) ? CTXB_PORT_OPTIONAL : 0U) |
                 (flag(object, "side_chain", place) ? CTXB_PORT_SIDE_CHAIN : 0U) |
                 (port.result_bytes != 0 ? CTXB_PORT_RESULTS : 0U);
    port.id = text(object, "id", place);
    port.name = text(object, "name", place);
    port.channels = number(object, "channels", place);
    port.samples = number(object, "samples", place);
    // The largest number stays too large.
    if (object.contains("in_place")) {
      port.in_place = std::min(number(object, "in_place", place), UINT32_MAX - 1) + 1;
    }
    return port;
  }

  ctxb_parameter parameter(const Json& object, const JsonPlace& place) {
    check_object(object, place);
    ctxb_parameter parameter{};
    parameter.size = sizeof parameter;
    parameter.type = code<ParameterType>(object, "type", place, 8);  // numbered as the ABI's
    parameter.id = text(object, "id", place);
    parameter.name = text(object, "name", place);
    parameter.unit = optional_text(object, "unit", place);
    parameter.description = optional_text(object, "description", place);
    parameter.group = optional_text(object, "group", place);
    parameter.default_text = optional_text(object, "default_text", place);
    parameter.choices = texts(object, "choices", place);
    parameter.endings = texts(object, "endings", place);
    parameter.flags = (flag(object, "automatable", place) ? CTXB_PARAMETER_AUTOMATABLE : 0U) |
                      (flag(object, "hidden", place) ? CTXB_PARAMETER_HIDDEN : 0U) |
                      (flag(object, "advanced", place) ? CTXB_PARAMETER_ADVANCED : 0U);
    const std::size_t numbers = number_count(static_cast<ParameterType>(parameter.type));
    parameter.skew = object.contains("skew") ? real(object.at("skew"), within(place, "skew")) : 1;
    if (numbers == 0) return parameter;
    parameter.minimum = real(required(object, "minimum", place), within(place, "minimum"));
    parameter.maximum = real(required(object, "maximum", place), within(place, "maximum"));
    const Json& defaults = required(object, "default", place);
    const JsonPlace inner = within(place, "default");
    if (!defaults.is_array() || defaults.size() != numbers) {
      inner.refuse("an array of " + std::to_string(numbers) + " numbers has to stand here");
    }
    for (std::size_t i = 0; i < numbers; ++i) {
      parameter.default_numbers[i] = real(defaults[i], inner);
    }
    return parameter;
  }

  // Only their names are described.
  void read_modules(const Json& plugin, const JsonPlace& place) {
    const char* const* name = texts(plugin, "modules", place);
    for (; name != nullptr && *name != nullptr; ++name) {
      ctxb_module module{};
      module.size = sizeof module;
      module.name = *name;
      module.file = "elsewhere";
      modules_.push_back(module);
    }
  }

  ctxb_plugin_descriptor descriptor_{};
  std::deque<std::vector<const char*>> lists_;
  std::vector<ctxb_port> inputs_, outputs_;
  std::vector<ctxb_parameter> parameters_;
  std::vector<ctxb_module> modules_;
};

}  // namespace

Json to_json(const std::vector<PluginDescription>& plugins) {
  return array_to_json(plugins, plugin_to_json);
}

std::vector<PluginDescription> read_plugins(const Json& plugins, const Location& location,
                                            const std::string& library_path) {
  if (!plugins.is_array()) {
    location.refuse(described(plugins) + " is not allowed here; an array of plug-ins is");
  }
  if (plugins.empty() || plugins.size() > most_described) {
    location.refuse("there are " + std::to_string(plugins.size()) +
                    " plug-ins; a library has 1 to " + std::to_string(most_described));
  }
  const JsonPlace root{nullptr, nullptr, 0, &location};
  std::vector<PluginDescription> read;
  std::set<std::string_view> ids;
  read.reserve(plugins.size());
  for (std::size_t index = 0; index < plugins.size(); ++index) {
    const JsonPlace place{&root, nullptr, index, nullptr};
    const ForeignDescriptor given(plugins[index], place);
    try {
      read.push_back(read_descriptor(&given.get(), "it").description);
    } catch (const Error& error) {
      place.refuse(error.message());
    }
    read.back().library_path = library_path;
    if (!ids.insert(read.back().id).second) {
      place.refuse("two plug-ins have the id " + read.back().id);
    }
  }
  return read;
}

}  // namespace ctxbroker::detail
