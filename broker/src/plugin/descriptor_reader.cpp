// SPDX-License-Identifier: Apache-2.0
#include "plugin/descriptor_reader.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "ctxbroker/error.hpp"
#include "module/image_maker.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/parameter_store.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint32_t most_parameters = 4096;
constexpr std::uint32_t most_modules = 256;
constexpr std::uint32_t most_parts = 256;  // of one module
constexpr std::uint32_t most_ports = 64;   // of inputs, and of outputs
constexpr std::uint32_t most_result_bytes = 65536;
constexpr std::uint32_t most_log_bytes = std::uint32_t{1} << 20;
constexpr std::size_t most_listed = 4096;                        // of one list
constexpr std::uint64_t most_text = std::uint64_t{1} << 22;      // bytes, of one descriptor
constexpr std::uint64_t largest_image = std::uint64_t{1} << 30;  // bytes
constexpr double largest_whole = 9007199254740992.0;             // 2^53: doubles count by ones

// Reads with a memory of where it is, so that every refusal can name the place.
struct DescriptorPlace {
  std::string text;             // "libx.so: plug-in com.example.blur"
  std::uint64_t* bytes_taken;   // of all texts of the descriptor
  const LibraryBounds* bounds;  // null: the descriptor is not a library's

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::plugin_entry,
                text + ": " + why + "; the plug-in's author has to correct its descriptor");
  }
  void check_that(bool holds, const char* why) const {
    if (!holds) refuse(why);
  }
  // Refuses what lies in a library that has nothing to do with this one.
  void check_own(const void* given, const std::string& member) const {
    if (given == nullptr || bounds == nullptr) return;
    const std::string other = bounds->stranger_at(given);
    if (other.empty()) return;
    throw Error(ErrorKind::plugin_entry,
                text + ": " + member + " lies in " + other + remedy_for_shared_data());
  }
  DescriptorPlace at(const std::string& inner) const {
    return {text + ", " + inner, bytes_taken, bounds};
  }
};

std::string text(const DescriptorPlace& location, const char* given, const char* member) {
  location.check_own(given, member);
  auto copy = take_text(given);
  if (!copy) location.refuse(std::string(member) + " is null, too long, or no clean UTF-8");
  *location.bytes_taken += sizeof(std::string) + copy->size();
  if (*location.bytes_taken > most_text) location.refuse("its texts take more than 4 MiB in all");
  return *std::move(copy);
}

std::string filled_text(const DescriptorPlace& location, const char* given, const char* member) {
  std::string copy = text(location, given, member);
  if (copy.empty()) location.refuse(std::string(member) + " is empty");
  return copy;
}

// A list that ends with null; an absent list is empty.
std::vector<std::string> names(const DescriptorPlace& location, const char* const* list,
                               const char* member) {
  std::vector<std::string> copies;
  if (list == nullptr) return copies;
  location.check_own(list, member);
  for (std::size_t index = 0; list[index] != nullptr; ++index) {
    if (index == most_listed) location.refuse(std::string(member) + " does not end with null");
    copies.push_back(filled_text(location, list[index], member));
  }
  return copies;
}

// An array that a struct of the library points to.
template <typename Struct>
struct Table {
  const Struct* first;
  std::uint32_t count;
  const char* one;   // "part": the members are `parts` and `part_count`
  const char* type;  // "ctxb_module_part"
  std::uint32_t most;
  std::size_t least_bytes;  // of each element
};

// Reads a table. Returns what `read` makes of each element and its index.
template <typename Struct, typename Read>
auto read_table(const DescriptorPlace& location, const Table<Struct>& table, const Read& read) {
  std::vector<decltype(read(*table.first, 0U))> made;
  if (table.count == 0) return made;
  const std::string one = table.one, all = one + "s";
  if (table.count > table.most) location.refuse(one + "_count is absurd");
  if (table.first == nullptr) location.refuse(all + " is null, " + one + "_count is not 0");
  location.check_own(table.first, all);
  if (!is_valid(table.first, table.least_bytes) || !is_step(table.first)) {
    location.refuse(all + "[0].size is not that of a " + table.type);
  }
  const auto size_of = [&](std::uint32_t index) {
    return all + '[' + std::to_string(index) + "].size is " +
           std::to_string(element(table.first, index)->size);
  };
  for (std::uint32_t index = 0; index < table.count; ++index) {
    const Struct* const given = element(table.first, index);
    if (given->size != table.first->size) {
      location.refuse(all + " differ in size: " + size_of(index) + ", and " + size_of(0));
    }
    made.push_back(read(*given, index));
  }
  return made;
}

// `what` is "parameters have the id".
template <typename Thing>
void check_differs(const DescriptorPlace& location, const std::vector<Thing>& things,
                   std::string Thing::*name, const std::string& what) {
  std::set<std::string_view> seen;
  for (const Thing& one : things) {
    if (!seen.insert(one.*name).second) location.refuse("two " + what + " \"" + one.*name + '"');
  }
}

bool is_whole(double value) {
  return std::trunc(value) == value && std::abs(value) <= largest_whole;
}

// The value with this code, or a refusal that shows it. The first value has the code `first`, and
// the others follow in the order of the enumeration, which c_library.cpp checks.
template <typename Enum>
Enum meaning(const DescriptorPlace& location, std::uint32_t code, std::uint32_t first, Enum last,
             const char* member) {
  if (code >= first && code - first <= static_cast<std::uint32_t>(last)) {
    return static_cast<Enum>(code - first);
  }
  location.refuse(std::string(member) + " is " + std::to_string(code) + ", which has no meaning");
}

bool has_slider(ParameterType type) {
  return type == ParameterType::floating || type == ParameterType::integer;
}

void check_range(const DescriptorPlace& location, const ParameterDescription& parameter) {
  const double low = parameter.minimum, high = parameter.maximum;
  const ParameterValue& value = parameter.default_value;
  const auto all = [&](auto holds) { return std::all_of(value.begin(), value.end(), holds); };
  location.check_that(std::isfinite(low) && std::isfinite(high) &&
                          all([](double one) { return std::isfinite(one); }),
                      "minimum, maximum and default_numbers must be finite");
  location.check_that(low <= high, "minimum is above maximum");
  location.check_that(std::isfinite(high - low), "maximum less minimum must be finite");
  location.check_that(all([&](double one) { return one >= low && one <= high; }),
                      "default_numbers are outside minimum and maximum");
  if (value.count() > 1 || parameter.type == ParameterType::floating) return;
  location.check_that(is_whole(low) && is_whole(high) && is_whole(value.number()),
                      "minimum, maximum and default_numbers must be whole");
  if (parameter.type == ParameterType::boolean) {
    location.check_that(low == 0 && high == 1, "a boolean goes from 0 to 1");
  }
  if (parameter.type == ParameterType::choice) {
    location.check_that(low == 0 && high == static_cast<double>(parameter.choices.size()) - 1,
                        "a choice goes from 0 to the number of its names less 1");
  }
}

void read_numbers(const DescriptorPlace& location, const ctxb_parameter& given,
                  ParameterDescription& parameter) {
  parameter.minimum = given.minimum;
  parameter.maximum = given.maximum;
  parameter.default_value = value_of(given.default_numbers, number_count(parameter.type));
  check_range(location, parameter);
  parameter.skew = given.skew == 0 ? 1 : given.skew;
  location.check_that(std::isfinite(parameter.skew) && parameter.skew > 0, "skew is not above 0");
  location.check_that(parameter.skew == 1 || has_slider(parameter.type),
                      "skew belongs to floats and integers");
  location.check_that(given.default_text == nullptr || *given.default_text == '\0',
                      "default_text belongs to strings and files");
}

void read_text_of(const DescriptorPlace& location, const ctxb_parameter& given,
                  ParameterDescription& parameter) {
  if (given.default_text != nullptr) {
    parameter.default_text = text(location, given.default_text, "default_text");
  }
  location.check_that(!parameter.automatable, "a string or a file cannot be automatable");
  location.check_that(given.minimum == 0 && given.maximum == 0 && given.unit != nullptr &&
                          *given.unit == '\0' && (given.skew == 0 || given.skew == 1),
                      "a string or a file has no range, no unit and no skew");
  try {
    parameter.check_text(parameter.default_text);
  } catch (const Error& error) {
    location.refuse("default_text: " + error.message());
  }
}

ParameterDescription read_parameter(const DescriptorPlace& outer, const ctxb_parameter& given) {
  const std::string id = text(outer, given.id, "a parameter's id");
  if (!is_parameter_id(id)) outer.refuse("parameter id \"" + id + "\" is not made of [a-z0-9_]");
  const DescriptorPlace location = outer.at("parameter " + id);
  ParameterDescription parameter;
  parameter.id = id;
  parameter.name = filled_text(location, given.name, "name");
  parameter.unit = text(location, given.unit, "unit");
  parameter.description = text(location, given.description, "description");
  if (given.group != nullptr) parameter.group = text(location, given.group, "group");
  parameter.type = meaning(location, given.type, CTXB_PARAMETER_FLOAT, ParameterType::file, "type");
  parameter.choices = names(location, given.choices, "choices");
  location.check_that((parameter.type == ParameterType::choice) == !parameter.choices.empty(),
                      "choices belong to a choice, and only to it");
  location.check_that(
      std::set<std::string>(parameter.choices.begin(), parameter.choices.end()).size() ==
          parameter.choices.size(),
      "two choices have the same name");
  parameter.endings = names(location, given.endings, "endings");
  location.check_that(parameter.endings.empty() || parameter.type == ParameterType::file,
                      "endings belong to files");
  parameter.automatable = (given.flags & CTXB_PARAMETER_AUTOMATABLE) != 0;
  parameter.hidden = (given.flags & CTXB_PARAMETER_HIDDEN) != 0;
  parameter.advanced = (given.flags & CTXB_PARAMETER_ADVANCED) != 0;
  (parameter.is_text() ? read_text_of : read_numbers)(location, given, parameter);
  return parameter;
}

std::vector<ParameterDescription> read_parameters(const DescriptorPlace& location,
                                                  const ctxb_plugin_descriptor& given) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the last member is a pointer
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_parameter, endings);
  auto parameters = read_table<ctxb_parameter>(
      location,
      {given.parameters, given.parameter_count, "parameter", "ctxb_parameter", most_parameters,
       least},
      [&](const ctxb_parameter& one, std::uint32_t) { return read_parameter(location, one); });
  check_differs(location, parameters, &ParameterDescription::id, "parameters have the id");
  return parameters;
}

PortDescription read_port(const DescriptorPlace& outer, const char* which, std::size_t index,
                          const ctxb_port& given, const ctxb_plugin_descriptor& plugin) {
  const bool is_input = which[0] == 'i';
  const std::string member = std::string(which) + "s[" + std::to_string(index) + "].id";
  const std::string id = text(outer, given.id, member.c_str());
  if (!is_parameter_id(id)) outer.refuse(member + " \"" + id + "\" is not made of [a-z0-9_]");
  const DescriptorPlace location = outer.at(which + (" " + id));
  PortDescription port;
  port.id = id;
  port.name = filled_text(location, given.name, "name");
  port.optional = (given.flags & CTXB_PORT_OPTIONAL) != 0;
  port.side_chain = (given.flags & CTXB_PORT_SIDE_CHAIN) != 0;
  port.channels = given.channels;
  port.samples = given.samples & (CTXB_SAMPLE_FLOAT | CTXB_SAMPLE_HALF);
  port.result_bytes = given.result_bytes;
  port.in_place = static_cast<int>(given.in_place) - 1;
  location.check_that(!port.side_chain || (is_input && plugin.media == CTXB_MEDIA_AUDIO),
                      "only an input for audio can be a side-chain");
  location.check_that(is_input ? given.in_place == 0 : given.in_place <= plugin.input_count,
                      "in_place is not the number of an input plus 1");
  if ((given.flags & CTXB_PORT_RESULTS) != 0) {
    location.check_that(!is_input, "an input has results");
    location.check_that(given.result_bytes >= 1 && given.result_bytes <= most_result_bytes,
                        "result_bytes is not between 1 and 65536");
    location.check_that(given.channels == 0 && given.samples == 0 && given.in_place == 0,
                        "channels, samples and in_place have to be 0 for results");
    return port;
  }
  location.check_that(given.result_bytes == 0, "result_bytes belongs to results, and only to them");
  location.check_that(given.channels != 0, "channels is 0");
  location.check_that(port.samples != 0, "samples has no type that this host knows");
  location.check_that(plugin.media == CTXB_MEDIA_IMAGE || port.samples == CTXB_SAMPLE_FLOAT,
                      "samples of audio are CTXB_SAMPLE_FLOAT");
  return port;
}

std::vector<PortDescription> read_ports(const DescriptorPlace& location, const char* which,
                                        const ctxb_port* first, std::uint32_t count,
                                        const ctxb_plugin_descriptor& plugin) {
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_port, in_place);
  auto ports =
      read_table<ctxb_port>(location, {first, count, which, "ctxb_port", most_ports, least},
                            [&](const ctxb_port& one, std::uint32_t index) {
                              return read_port(location, which, index, one, plugin);
                            });
  check_differs(location, ports, &PortDescription::id, std::string(which) + "s have the id");
  return ports;
}

// Borrowed bytes of the library; null stays null.
const std::byte* image_data(const DescriptorPlace& location, const void* data,
                            std::uint64_t bytes) {
  location.check_own(data, "data");
  if (data != nullptr) {
    location.check_that(bytes >= 1 && bytes <= largest_image, "data_size is absurd");
  }
  return static_cast<const std::byte*>(data);
}

std::string path_text(const DescriptorPlace& location, const char* given) {
  return given == nullptr ? std::string() : filled_text(location, given, "file");
}

std::vector<ModulePart> read_parts(const DescriptorPlace& outer, const ctxb_module& given) {
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_module_part, checksum);
  return read_table<ctxb_module_part>(
      outer, {given.parts, given.part_count, "part", "ctxb_module_part", most_parts, least},
      [&](const ctxb_module_part& part, std::uint32_t) {
        ModulePart read;
        read.name = filled_text(outer, part.name, "a part's name");
        const DescriptorPlace location = outer.at("part " + read.name);
        read.data = image_data(location, part.data, part.data_size);
        read.size = part.data_size;
        read.file = path_text(location, part.file);
        read.checksum = part.checksum;
        location.check_that(read.data != nullptr || !read.file.empty(), "data and file are null");
        return read;
      });
}

std::optional<CudaSource> read_source(const DescriptorPlace& outer, const ctxb_cuda_source* given) {
  if (given == nullptr) return std::nullopt;
  outer.check_own(given, "source");
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the last member is a pointer
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_cuda_source, options);
  outer.check_that(is_valid(given, least), "source->size is not that of a ctxb_cuda_source");
  CudaSource source;
  source.name = filled_text(outer, given->name, "source->name");
  const DescriptorPlace location = outer.at("source " + source.name);
  location.check_that(given->text != nullptr, "text is null");
  location.check_own(given->text, "text");
  source.text = given->text;
  source.options = names(location, given->options, "options");
  return source;
}

JitOptions read_jit(const DescriptorPlace& location, const ctxb_jit_options* given) {
  JitOptions options;
  if (given == nullptr) return options;
  location.check_own(given, "jit");
  location.check_that(is_valid(given, CTXB_BYTES_THROUGH(ctxb_jit_options, log_bytes)),
                      "jit->size is not that of a ctxb_jit_options");
  location.check_that(given->optimisation <= CTXB_JIT_LEVEL(4),
                      "jit->optimisation is above level 4");
  location.check_that(given->log_bytes <= most_log_bytes, "jit->log_bytes is above 1 MiB");
  options.max_registers = given->max_registers;
  options.optimisation = given->optimisation;
  options.target = given->target;
  options.loader_threads = given->loader_threads;
  options.log_bytes = given->log_bytes;
  options.debug_info = (given->flags & CTXB_JIT_DEBUG_INFO) != 0;
  options.line_info = (given->flags & CTXB_JIT_LINE_INFO) != 0;
  options.verbose = (given->flags & CTXB_JIT_VERBOSE) != 0;
  return options;
}

ModuleImage read_module(const DescriptorPlace& outer, const ctxb_module& given) {
  ModuleImage module;
  module.name = filled_text(outer, given.name, "a module's name");
  const DescriptorPlace location = outer.at("module " + module.name);
  module.data = image_data(location, given.data, given.data_size);
  module.size = given.data_size;
  module.kernels = names(location, given.kernels, "kernels");
  module.on_first_use = (given.flags & CTXB_MODULE_ON_FIRST_USE) != 0;
  module.development = (given.flags & CTXB_MODULE_DEVELOPMENT) != 0;
  module.parts = read_parts(location, given);
  module.source = read_source(location, given.source);
  module.file = path_text(location, given.file);
  module.jit = read_jit(location, given.jit);
  module.checksum = given.checksum;
  module.file_options = names(location, given.file_options, "file_options");
  location.check_that(!module.development || !module.file.empty(),
                      "CTXB_MODULE_DEVELOPMENT needs a file to watch");
  const int built_in =
      (module.data != nullptr ? 1 : 0) + (module.parts.empty() ? 0 : 1) + (module.source ? 1 : 0);
  location.check_that(built_in <= 1, "more than one of data, parts and source is given");
  location.check_that(built_in == 1 || !module.file.empty(), "data is null");
  module.maker = std::make_shared<ImageMaker>();
  return module;
}

std::vector<ModuleImage> read_modules(const DescriptorPlace& location,
                                      const ctxb_plugin_descriptor& given) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the last member is a pointer
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_module, file_options);
  auto modules = read_table<ctxb_module>(
      location, {given.modules, given.module_count, "module", "ctxb_module", most_modules, least},
      [&](const ctxb_module& one, std::uint32_t) { return read_module(location, one); });
  check_differs(location, modules, &ModuleImage::name, "modules have the name");
  return modules;
}

}  // namespace

PluginRecord read_descriptor(const ctxb_plugin_descriptor* given, const std::string& where,
                             const LibraryBounds* bounds) {
  std::uint64_t bytes_taken = 0;
  const DescriptorPlace library{where, &bytes_taken, bounds};
  constexpr std::size_t least = CTXB_BYTES_THROUGH(ctxb_plugin_descriptor, output_count);
  library.check_that(is_valid(given, least),
                     "a descriptor is null or shorter than version 1.0 has it");
  const std::string id = text(library, given->id, "a plug-in's id");
  if (!is_reverse_dns(id)) {
    library.refuse("plug-in id \"" + id + "\" is not of the form com.example.name");
  }
  const DescriptorPlace location = library.at("plug-in " + id);
  PluginRecord record;
  PluginDescription& description = record.description;
  description.id = id;
  description.short_name = id.substr(id.rfind('.') + 1);
  description.name = filled_text(location, given->name, "name");
  description.vendor = text(location, given->vendor, "vendor");
  description.version = filled_text(location, given->version, "version");
  description.description = text(location, given->description, "description");
  description.features = names(location, given->features, "features");
  description.media = meaning(location, given->media, CTXB_MEDIA_IMAGE, Media::audio, "media");
  description.cuda_use =
      meaning(location, given->cuda_use, CTXB_CUDA_KERNELS, CudaUse::runtime, "cuda_use");
  description.lease_wish =
      meaning(location, given->lease, CTXB_LEASE_AUTO, LeaseKind::worker, "lease");
  description.flags = given->flags;
  description.needs_nvidia_driver = (given->flags & CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER) != 0;
  location.check_that(given->concurrency <= CTXB_CONCURRENCY_LIBRARY,
                      "concurrency has an unknown value");
  record.one_at_a_time = given->concurrency == CTXB_CONCURRENCY_LIBRARY;
  location.check_that(given->min_compute_major <= 1000 && given->min_compute_minor <= 1000,
                      "the least compute capability is absurd");
  description.min_compute_major = static_cast<int>(given->min_compute_major);
  description.min_compute_minor = static_cast<int>(given->min_compute_minor);
  description.inputs = read_ports(location, "input", given->inputs, given->input_count, *given);
  description.outputs = read_ports(location, "output", given->outputs, given->output_count, *given);
  location.check_that(!description.outputs.empty(), "it has no output");
  description.parameters = read_parameters(location, *given);
  record.modules = read_modules(location, *given);
  for (const auto& module : record.modules) description.modules.push_back(module.name);
  return record;
}

}  // namespace ctxbroker::detail
