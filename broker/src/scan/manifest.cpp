// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/manifest.hpp"

#include <system_error>

#include "ctxbroker/error.hpp"
#include "plugin/build_id.hpp"
#include "plugin/description_json.hpp"

namespace ctxbroker {
namespace {

namespace fs = std::filesystem;
using json::Json;
using json::Location;
using json::member;

constexpr const char* manifest_schema = "ctxbroker.manifest/1";

Manifest parse(std::string_view text, const std::string& document, const fs::path& library) {
  const Location root{document, "$"};
  const Json json = json::parse_document(text, root, manifest_schema);
  Manifest manifest;
  const Json& id = json::required(json, root, "build_id");
  const bool is_hexadecimal =
      id.is_string() && !id.get_ref<const std::string&>().empty() &&
      id.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hexadecimal) {
    member(root, "build_id").refuse(json::described(id) + " is no build-id in hexadecimal digits");
  }
  manifest.build_id = id.get<std::string>();
  manifest.plugins = detail::read_plugins(json::required(json, root, "plugins"),
                                          member(root, "plugins"), library.string());
  return manifest;
}

}  // namespace

fs::path manifest_path(const fs::path& library) {
  fs::path path = library;
  return path.replace_extension(".ctxb.json");
}

ManifestReading read_manifest(const fs::path& library) {
  ManifestReading reading;
  const fs::path path = manifest_path(library);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    reading.trouble = "there is no manifest \"" + path.string() + "\"";
    return reading;
  }
  reading.exists = true;
  const std::string document = "manifest \"" + path.string() + "\"";
  if (!fs::is_regular_file(status)) {  // a pipe would be waited for
    reading.trouble = document + ": it is no file";
    return reading;
  }
  try {
    Manifest manifest =
        parse(json::read_text(path, "manifest", limits::manifest_file), document, library);
    const std::string id = detail::build_id(library);
    if (manifest.build_id == id) {
      reading.manifest = std::move(manifest);
      return reading;
    }
    reading.stale = true;
    reading.trouble = document + ": it is of build " + manifest.build_id + " of the library, and " +
                      (id.empty() ? "the library has no build-id" : "the library is build " + id);
  } catch (const json::DocumentError& failed) {
    reading.trouble = failed.what();
  }
  return reading;
}

std::string to_json(const Manifest& manifest) {
  const Json json{{"schema", manifest_schema},
                  {"build_id", manifest.build_id},
                  {"plugins", detail::to_json(manifest.plugins)}};
  return json.dump(2) + "\n";
}

Manifest make_manifest(const fs::path& library, const std::vector<PluginDescription>& plugins) {
  Manifest manifest{detail::build_id(library), plugins};
  if (!manifest.build_id.empty()) return manifest;
  throw Error(ErrorKind::plugin_load, "\"" + library.string() +
                                          "\" has no build-id, by which a manifest names the "
                                          "library; link it with -Wl,--build-id=sha1");
}

}  // namespace ctxbroker
