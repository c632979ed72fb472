// SPDX-License-Identifier: Apache-2.0
// Plug-in descriptions as JSON: in manifests, in the scan's cache, and as a scanning process
// answers. What is read is held to the same rules as a library's own descriptor.
#pragma once

#include <vector>

#include "ctxbroker/plugin_description.hpp"
#include "json/document.hpp"

namespace ctxbroker::detail {

// An array of objects. Members with their usual values are left out.
json::Json to_json(const std::vector<PluginDescription>& plugins);

// Reads what to_json wrote; members that it does not know are passed over. `library_path` becomes
// that of each description. Throws json::DocumentError for anything that no library can say of
// itself, a list without a plug-in included.
std::vector<PluginDescription> read_plugins(const json::Json& plugins,
                                            const json::Location& location,
                                            const std::string& library_path);

}  // namespace ctxbroker::detail
