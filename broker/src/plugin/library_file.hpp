// A plug-in's shared library as a file and as a loaded image. The operating system's part of
// loading plug-ins; Boost.DLL does the loading.
#pragma once

#include <boost/dll/shared_library.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace ctxbroker::detail {

// Which file it is, whatever path led to it.
using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode

// The file behind `path`, every link followed. Throws Error (plugin_not_found) when there is none.
std::filesystem::path canonical_library(const std::filesystem::path& path);
FileId file_id(const std::filesystem::path& canonical);

// File name without "lib" and suffix: the tenant's name.
std::string library_name(const std::filesystem::path& path);

// Loads with every symbol resolved and none given away. Throws Error (plugin_load) with the
// loader's own text.
boost::dll::shared_library load_library(const std::filesystem::path& canonical);

// From now on the image stays in the process, whoever closes it.
void keep_resident(const std::filesystem::path& canonical) noexcept;

}  // namespace ctxbroker::detail
