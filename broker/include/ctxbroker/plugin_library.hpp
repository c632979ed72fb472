// One loaded plug-in library: a tenant. Its descriptors can be read without a GPU.
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

// A counted handle: the library ends with its last handle and its last instance. Copying is cheap.
// [main] thread, or serialised with it.
class CTXB_API PluginLibrary {
 public:
  // Never empty: a library without plug-ins is refused when it is loaded.
  const std::vector<PluginDescription>& plugins() const noexcept;
  const std::filesystem::path& path() const noexcept;
  const std::string& name() const noexcept;  // file name without "lib" and suffix; tenant's name
  TenantId tenant() const noexcept;

 private:
  friend class Broker;
  friend class PluginInstance;
  explicit PluginLibrary(std::shared_ptr<detail::LoadedLibrary> impl);
  std::shared_ptr<detail::LoadedLibrary> impl_;
};

}  // namespace ctxbroker
