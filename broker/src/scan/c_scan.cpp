// SPDX-License-Identifier: Apache-2.0
// host_scan.h.
#include "ctxbroker/host_scan.h"

#include "ctxbroker/scan.hpp"
#include "plugin/c_host.hpp"

struct ctxb_scan {
  ctxbroker::ScanResult result;
  std::vector<std::vector<std::vector<const char*>>> features;  // of each plug-in, by library
};

namespace ctxbroker::detail {
namespace {

template <typename Text>
std::vector<Text> texts_of(const char* const* given) {
  std::vector<Text> texts;
  for (; given != nullptr && *given != nullptr; ++given) texts.emplace_back(*given);
  return texts;
}

ScanOptions read_scan_options(const ctxb_scan_options* options) {
  ScanOptions wanted;
  if (options == nullptr) return wanted;
  const ctxb_scan_options given =
      taken(options, "the options' size is not sizeof(ctxb_scan_options)");
  if (given.deadline_ms != 0) wanted.deadline = std::chrono::milliseconds(given.deadline_ms);
  wanted.first = texts_of<std::filesystem::path>(given.first);
  wanted.beside = texts_of<std::filesystem::path>(given.beside);
  wanted.allow = texts_of<std::string>(given.allow);
  wanted.deny = texts_of<std::string>(given.deny);
  wanted.at_once = given.at_once;
  wanted.environment = !read_flag(given.without_environment, "without_environment");
  wanted.standard = !read_flag(given.without_standard, "without_standard");
  wanted.safe = read_flag(given.safe, "safe");
  wanted.rescan = read_flag(given.rescan, "rescan");
  wanted.use_cache = !read_flag(given.without_cache, "without_cache");
  if (given.cache_file != nullptr) wanted.cache_file = given.cache_file;
  if (given.choices_file != nullptr) wanted.choices_file = given.choices_file;
  if (given.program != nullptr) wanted.program = given.program;
  if (given.progress != nullptr) {
    wanted.progress = [tell = given.progress, data = given.progress_data](const ScanProgress& one) {
      return tell(data, one.done, one.total, one.library.c_str(), one.begins ? 1 : 0) != 0;
    };
  }
  return wanted;
}

const ScannedLibrary& library_of(const ctxb_scan* scan, std::uint32_t library) {
  check_argument(scan != nullptr, "scan is null");
  return element_of(scan->result.libraries, library, "the scan", "library");
}

}  // namespace
}  // namespace ctxbroker::detail

using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::give;

ctxb_status ctxb_scan_run(const ctxb_scan_options* options, ctxb_scan** scan) {
  if (scan != nullptr) *scan = nullptr;
  return answered(scan != nullptr, "scan is null", [&] {
    auto made = std::make_unique<ctxb_scan>();
    made->result = ctxbroker::scan(ctxbroker::detail::read_scan_options(options));
    for (const ctxbroker::ScannedLibrary& library : made->result.libraries) {
      auto& lists = made->features.emplace_back();
      for (const auto& plugin : library.plugins) {
        lists.push_back(ctxbroker::detail::list(plugin.features));
      }
    }
    *scan = made.release();
  });
}

ctxb_status ctxb_scan_end(ctxb_scan* scan) {
  return answered(scan != nullptr, "scan is null", [&] { delete scan; });
}

uint32_t ctxb_scan_library_count(const ctxb_scan* scan) {
  return scan == nullptr ? 0 : static_cast<uint32_t>(scan->result.libraries.size());
}

ctxb_status ctxb_scan_library(const ctxb_scan* scan, uint32_t library, ctxb_scanned_library* info) {
  return answered([&] {
    const ctxbroker::ScannedLibrary& one = ctxbroker::detail::library_of(scan, library);
    give(info,
         {0, static_cast<uint32_t>(one.state), one.path.c_str(), one.reason.c_str(), one.strikes,
          static_cast<uint32_t>(one.plugins.size())},
         "info is null, or its size is not sizeof(ctxb_scanned_library)");
  });
}

ctxb_status ctxb_scan_plugin(const ctxb_scan* scan, uint32_t library, uint32_t plugin,
                             ctxb_plugin_info* info) {
  return answered([&] {
    const ctxbroker::ScannedLibrary& owner = ctxbroker::detail::library_of(scan, library);
    const auto& one = ctxbroker::detail::element_of(
        owner.plugins, plugin, "library \"" + owner.path.string() + "\"", "plug-in");
    give(info, ctxbroker::detail::described(one, scan->features[library][plugin].data()),
         "info is null, or its size is not sizeof(ctxb_plugin_info)");
  });
}

ctxb_status ctxb_scan_find(const ctxb_scan* scan, const char* name, ctxb_found_plugin* found) {
  return answered(scan != nullptr && name != nullptr, "scan or name is null", [&] {
    const auto& libraries = scan->result.libraries;
    const ctxbroker::PluginDescription* const plugin = scan->result.find(name);
    if (plugin == nullptr) {
      throw ctxbroker::Error(ctxbroker::ErrorKind::plugin_not_found,
                             "no plug-in, or more than one, is called \"" + std::string(name) +
                                 "\"; an id names only one");
    }
    for (std::size_t index = 0; index < libraries.size(); ++index) {
      const auto& plugins = libraries[index].plugins;
      if (plugins.empty() || plugin < plugins.data() || plugin >= plugins.data() + plugins.size()) {
        continue;
      }
      give(found,
           {0, static_cast<uint32_t>(index), static_cast<uint32_t>(plugin - plugins.data()), 0,
            libraries[index].path.c_str()},
           "found is null, or its size is not sizeof(ctxb_found_plugin)");
    }
  });
}

ctxb_status ctxb_scan_write(const ctxb_scan* scan, ctxb_text_function write, void* data) {
  return ctxbroker::detail::send(write, data, [&](const auto& pass) {
    check_argument(scan != nullptr, "scan is null");
    pass(ctxbroker::to_json(scan->result));
  });
}

ctxb_status ctxb_scan_set_enabled(const char* library, uint32_t enabled,
                                  const ctxb_scan_options* options) {
  return answered(library != nullptr, "library is null", [&] {
    ctxbroker::set_library_enabled(library, ctxbroker::detail::read_flag(enabled, "enabled"),
                                   ctxbroker::detail::read_scan_options(options));
  });
}

int ctxb_scan_program(int argc, const char* const* argv) {
  if (argc < 1 || argv == nullptr) return 2;
  try {
    return ctxbroker::run_scan_program({argv + 1, argv + argc});
  } catch (const std::exception&) {
    return 1;
  }
}
