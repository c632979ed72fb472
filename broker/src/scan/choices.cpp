// SPDX-License-Identifier: Apache-2.0
#include "scan/choices.hpp"

#include <system_error>

#include "ctxbroker/error.hpp"
#include "json/document.hpp"
#include "observe/whole_file.hpp"
#include "process/environment.hpp"
#include "scan/library_files.hpp"

namespace ctxbroker::detail {
namespace {

using json::Json;
using json::Location;

constexpr const char* disabled_schema = "ctxbroker.disabled/1";

}  // namespace

std::filesystem::path default_choices() {
  const std::filesystem::path folder = user_folder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? folder : folder / "disabled.json";
}

std::set<std::string> parse_disabled(std::string_view text, const std::string& document) {
  const Location root{document, "$"};
  const Json json = json::parse_document(text, root, disabled_schema);
  const Json list = json.value("disabled", Json());
  const Location place = json::member(root, "disabled");
  if (!list.is_array()) place.refuse("an array of paths has to stand here");
  std::set<std::string> disabled;
  for (const Json& path : list) {
    if (!path.is_string()) place.refuse(json::described(path) + " is no path");
    disabled.insert(path.get<std::string>());
  }
  return disabled;
}

std::set<std::string> read_disabled(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(file, error);
  if (file.empty() || status.type() == std::filesystem::file_type::not_found) return {};
  constexpr const char* what = "list of disabled libraries";
  try {
    return parse_disabled(json::read_text(file, what, limits::disabled_file),
                          std::string(what) + " \"" + file.string() + "\"");
  } catch (const json::DocumentError& damaged) {
    throw json::DocumentError(std::string(damaged.what()) +
                              "; mend this file, or remove it to enable all libraries");
  }
}

void write_disabled(const std::filesystem::path& file, const std::set<std::string>& disabled) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) {
    throw Error(ErrorKind::output_file, "folder \"" + file.parent_path().string() +
                                            "\" cannot be made: " + error.message());
  }
  const Json json{{"schema", disabled_schema}, {"disabled", disabled}};
  const std::string text = json.dump(2) + "\n";
  write_own_file(file, [&](const auto& take) { take(text); });
}

}  // namespace ctxbroker::detail
