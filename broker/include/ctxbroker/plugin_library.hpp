// SPDX-License-Identifier: Apache-2.0
/// @file
/// One loaded plug-in library.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/plugin_description.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

namespace detail {
class LoadedLibrary;
}

/// A counted handle of a plug-in library, which is a tenant. Broker::load returns it.
///
/// Copies are cheap. The library ends with its last handle and its last instance: the broker calls
/// its deinit, and unloads it if all its plug-ins allow that. No function calls the plug-in or the
/// driver, because the broker read everything when it loaded the library. A moved-from handle must
/// not be used. A handle that is a temporary returns copies.
///
/// Threads: any thread may call its functions, several at once. Copy, move and destroy handles on
/// the thread that opened the broker, or serialise that with it.
class CTXB_API PluginLibrary {
 public:
  /// The library's plug-ins, at least one. They live as long as a handle of the library.
  [[nodiscard]] const std::vector<PluginDescription>& plugins() const& noexcept;
  [[nodiscard]] std::vector<PluginDescription> plugins() && { return plugins(); }
  /// The library's file, as an absolute path without links in it.
  [[nodiscard]] const std::filesystem::path& path() const& noexcept;
  [[nodiscard]] std::filesystem::path path() && { return path(); }
  /// The file's name without "lib" and suffix, which is the tenant's name.
  [[nodiscard]] const std::string& name() const& noexcept;
  [[nodiscard]] std::string name() && { return name(); }
  /// The tenant that the library is. The same file has the same tenant whenever it is loaded.
  [[nodiscard]] TenantId tenant() const noexcept;

 private:
  friend class Broker;
  friend class PluginInstance;
  explicit PluginLibrary(std::shared_ptr<detail::LoadedLibrary> impl);
  std::shared_ptr<detail::LoadedLibrary> impl_;
};

}  // namespace ctxbroker
