// SPDX-License-Identifier: Apache-2.0
// sample_host kernels: what kernel images hold; loads nothing and needs no driver.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "ctxbroker/kernel_image.hpp"
#include "files/input_file.hpp"
#include "limits/limits.hpp"
#include "observe/regular_file.hpp"
#include "report.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

KernelImage read_image(const std::filesystem::path& path) {
  check_input_file(path);
  const detail::FileReading file = detail::read_regular_file(path, limits::image_bytes.most);
  if (file.is_too_large) {
    throw Failure(ExitCode::input, path.string() + ": has " + limits::beyond(limits::image_bytes));
  }
  if (!file.trouble.empty()) throw input_failure(path, file.trouble);
  try {
    return describe_image(file.bytes.data(), file.bytes.size());
  } catch (const Error& error) {
    throw Failure(exit_code_of(error.kind()), path.string() + ": " + error.message());
  }
}

std::string code_of(const ImageEntry& entry) {
  switch (entry.kind) {
    case CodeKind::ptx:
      return "PTX " + entry.ptx_version;
    case CodeKind::machine_code:
      return entry.is_relocatable ? "SASS, to be linked" : "SASS";
    case CodeKind::link_time:
      return "link-time code";
    case CodeKind::unknown:
      break;
  }
  return "unknown";
}

std::vector<std::string> names_in(const ImageEntry& entry) {
  std::vector<std::string> names = entry.kernels;
  for (const ImageVariable& variable : entry.variables) {
    names.push_back(variable.name + " (" + (variable.is_constant ? "constant, " : "variable, ") +
                    (variable.bytes == 0 ? "size unknown" : format_bytes(variable.bytes)) + ")");
  }
  if (names.empty()) names.emplace_back("-");
  return names;
}

std::string format_image(const std::string& path, const KernelImage& image) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < image.entries.size(); ++i) {
    const ImageEntry& entry = image.entries[i];
    std::vector<std::string> row{std::to_string(i + 1),        code_of(entry),
                                 target_name(entry),           format_bytes(entry.bytes),
                                 to_string(entry.compression), format_bytes(entry.unpacked_bytes)};
    for (const std::string& name : names_in(entry)) {
      row.push_back(name);
      rows.push_back(row);
      row.assign(6, "");  // further names stand alone
    }
  }
  const std::vector<Column> columns{
      {"entry", Align::right},  {"code"},   {"target"},
      {"bytes", Align::right},  {"packed"}, {"unpacked", Align::right},
      {"kernels and variables"}};
  return path + ": " + to_string(image.kind) + ", " + format_bytes(image.bytes) + "\n" +
         format_table(columns, rows);
}

nlohmann::ordered_json to_json(const ImageEntry& entry) {
  nlohmann::ordered_json json{{"code", to_string(entry.kind)}, {"target", target_name(entry)}};
  if (!entry.ptx_version.empty()) json["ptx_version"] = entry.ptx_version;
  json["address_bits"] = entry.is_64_bit ? 64 : 32;
  json["relocatable"] = entry.is_relocatable;
  json["compression"] = to_string(entry.compression);
  json["bytes"] = entry.bytes;
  json["unpacked_bytes"] = entry.unpacked_bytes;
  if (!entry.name.empty()) json["name"] = entry.name;
  json["kernels"] = entry.kernels;
  json["variables"] = nlohmann::ordered_json::array();
  for (const ImageVariable& variable : entry.variables) {
    json["variables"].push_back(
        {{"name", variable.name}, {"bytes", variable.bytes}, {"constant", variable.is_constant}});
  }
  return json;
}

nlohmann::ordered_json to_json(const std::string& path, const KernelImage& image) {
  nlohmann::ordered_json json{{"file", path},
                              {"kind", to_string(image.kind)},
                              {"bytes", image.bytes},
                              {"summary", summary(image)}};
  json["entries"] = nlohmann::ordered_json::array();
  for (const ImageEntry& entry : image.entries) json["entries"].push_back(to_json(entry));
  return json;
}

}  // namespace

ExitCode run_kernels(const Options& options) {
  // All are read before anything is printed: an error stands alone.
  std::string text;
  nlohmann::ordered_json json{{"schema", "ctxbroker.sample_host.kernels/1"}};
  json["images"] = nlohmann::ordered_json::array();
  for (const std::string& path : options.kernel_images) {
    const KernelImage image = read_image(path);
    json["images"].push_back(to_json(path, image));
    if (!text.empty()) text += '\n';
    text += format_image(path, image);
  }
  std::fputs(options.json ? dump(json).c_str() : text.c_str(), stdout);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
