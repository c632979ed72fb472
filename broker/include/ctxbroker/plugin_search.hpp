// Finding plug-in libraries on disk. Loads nothing.
#pragma once

#include <filesystem>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

// Folders in the order in which they are searched: `first` (a host's own option), then the folders
// of CTXBROKER_PLUGIN_PATH (separated by ':'; ignored when the process runs with raised
// privileges), then `beside` (usually the executable's own plug-in folder).
CTXB_API std::vector<std::filesystem::path> plugin_search_path(
    const std::vector<std::filesystem::path>& first,
    const std::vector<std::filesystem::path>& beside);

// The shared libraries in these folders, by folder, then by name; of two with the same file name
// the first counts. A folder that cannot be read is skipped, not an error.
CTXB_API std::vector<std::filesystem::path> find_plugin_libraries(
    const std::vector<std::filesystem::path>& folders);

}  // namespace ctxbroker
