// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a scan reads: a manifest's list of plug-ins, a scanning program's answer, the
// cache, the list of disabled libraries. What is taken can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugin/description_json.hpp"
#include "scan/choices.hpp"
#include "scan/protocol.hpp"
#include "scan/scan_cache.hpp"

namespace {

using namespace ctxbroker;

void read_again(const std::vector<PluginDescription>& plugins) {
  const json::Json written = detail::to_json(plugins);
  if (detail::to_json(detail::read_plugins(written, {"again", "$"}, "")) != written) std::abort();
}

template <typename Read>
void try_reader(const Read& read) {
  try {
    read();
  } catch (const json::DocumentError& error) {
    if (*error.what() == '\0') std::abort();
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_reader([&] {
    const json::Json json = json::parse(text, "fuzz.json");
    const json::Json plugins = json.is_object() ? json.value("plugins", json::Json()) : json;
    read_again(detail::read_plugins(plugins, {"fuzz.json", "$"}, "fuzz.so"));
  });
  try_reader([&] { static_cast<void>(detail::parse_disabled(text, "fuzz.json")); });
  static_cast<void>(detail::parse_request(text));
  static_cast<void>(detail::parse_reply(text, "fuzz.so"));
  // A header in front, so that the lines are looked at.
  const std::string header = "{\"schema\":\"ctxbroker.scan_cache/1\"}\n";
  const detail::CacheText cache = detail::parse_cache(header + text);
  std::string written = header;
  for (const auto& [path, entry] : cache.entries) {
    if (!entry.plugins.empty()) read_again(entry.plugins);
    written += detail::cache_line(path, entry);
  }
  if (detail::parse_cache(written).entries.size() != cache.entries.size()) std::abort();
  return 0;
}
