#include "ctxbroker/plugin_library.hpp"

#include <utility>

#include "plugin/loaded_library.hpp"

namespace ctxbroker {

PluginLibrary::PluginLibrary(std::shared_ptr<detail::LoadedLibrary> impl)
    : impl_(std::move(impl)) {}

const std::vector<PluginDescription>& PluginLibrary::plugins() const noexcept {
  return impl_->descriptions();
}

const std::filesystem::path& PluginLibrary::path() const noexcept {
  return impl_->path();
}

const std::string& PluginLibrary::name() const noexcept {
  return impl_->tenant()->name;
}

TenantId PluginLibrary::tenant() const noexcept {
  return impl_->tenant()->id;
}

}  // namespace ctxbroker
