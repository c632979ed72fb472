// SPDX-License-Identifier: Apache-2.0
// Reads a plug-in's descriptor: checked copies of everything, or an Error that says what is wrong.
#pragma once

#include <string>
#include <vector>

#include "ctxbroker/plugin.h"
#include "ctxbroker/plugin_description.hpp"
#include "module/module_image.hpp"
#include "plugin/library_bounds.hpp"

namespace ctxbroker::detail {

struct PluginRecord {
  PluginDescription description;
  std::vector<ModuleImage> modules;  // borrow the library's static data
  bool one_at_a_time = false;        // CTXB_CONCURRENCY_LIBRARY
};

// `where` names the library in error texts. `bounds`: of the library; null: the descriptor was not
// made by one. Throws Error: plugin_entry.
PluginRecord read_descriptor(const ctxb_plugin_descriptor* descriptor, const std::string& where,
                             const LibraryBounds* bounds = nullptr);

}  // namespace ctxbroker::detail
