// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds plug-in libraries on disk. Nothing here loads one.
#pragma once

#include <filesystem>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// Puts the folders in which a host looks for plug-ins in order. No folder appears twice.
///
/// @param first   folders to search first, for example those of a command-line option.
/// @param beside  folders to search last, usually the host's own plug-in folder.
/// @return `first`, then the folders of the environment variable CTXBROKER_PLUGIN_PATH (separated
///         by ':'), then `beside`. A process that runs with raised privileges ignores the variable.
///         Thread-safe as long as no thread changes the environment.
[[nodiscard]] CTXB_API std::vector<std::filesystem::path> plugin_search_path(
    const std::vector<std::filesystem::path>& first,
    const std::vector<std::filesystem::path>& beside);

/// Lists the shared libraries in some folders. It does not look into subfolders.
///
/// @param folders  in order of preference. A folder that cannot be read is skipped.
/// @return the files, in the order of the folders, then of their names. If two files have the same
///         name, only the first one is listed. Thread-safe.
[[nodiscard]] CTXB_API std::vector<std::filesystem::path> find_plugin_libraries(
    const std::vector<std::filesystem::path>& folders);

}  // namespace ctxbroker
