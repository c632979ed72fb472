// SPDX-License-Identifier: Apache-2.0
#include "plugin/loaded_library.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin_library.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/library_file.hpp"
#include "plugin/plugin_call.hpp"
#include "plugin/status_text.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {
namespace {

constexpr const char* entry_symbol = "ctxb_plugin_entry";
constexpr std::uint32_t most_plugins = 1024;  // of one library

// Files of modules are meant from the library's folder.
void find_files(std::vector<ModuleImage>& modules, const std::filesystem::path& folder) {
  const auto find = [&](std::filesystem::path& file) {
    if (!file.empty()) file = folder / file;  // an absolute path stays what it is
  };
  for (ModuleImage& module : modules) {
    find(module.file);
    for (ModulePart& part : module.parts) find(part.file);
  }
}

}  // namespace

LoadedLibrary::LoadedLibrary(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> tenant,
                             std::filesystem::path canonical)
    : broker_(broker),
      tenant_(broker, std::move(tenant), {}),
      path_(std::move(canonical)),
      lasting_path_(lasting(path_.native())) {
  try {
    image_ = tenant_.adopt(path_);
    read_entry();
    call_init();
    read_factory();
    std::vector<std::string> ids, sharing;
    for (const PluginDescription& plugin : descriptions_) {
      ids.push_back(plugin.id);
      if ((plugin.flags & CTXB_PLUGIN_DRIVER_MEMORY) != 0) sharing.push_back(plugin.id);
    }
    tenant_.know_plugins(ids, sharing);
  } catch (...) {
    end();
    throw;
  }
  tenant_.identity()->log(
      Severity::info, "plugin",
      "loaded " + path_.string() + " with " + std::to_string(descriptions_.size()) + " plug-in(s)");
}

LoadedLibrary::~LoadedLibrary() {
  end();
}

// Undoes what stands, in reverse order; also after a constructor that failed half-way.
void LoadedLibrary::end() noexcept {
  if (initialised_) {
    call_plugin(broker_.nowhere(), call("deinit"), [&] { entry_->deinit(); });
    initialised_ = false;
  }
  // One that was refused before its init ran has done nothing yet, and can go.
  if (image_ != nullptr) tenant_.dismiss(*image_, factory_ == nullptr || unloadable_);
}

Error::Origin LoadedLibrary::origin(const char* function) const {
  return {.call = function, .tenant = tenant()->name};
}

void LoadedLibrary::read_entry() {
  if (!image_->library.has(entry_symbol)) {
    throw Error(ErrorKind::plugin_entry, "\"" + path_.string() +
                                             "\" is not a ctxbroker plug-in: it does not export " +
                                             entry_symbol);
  }
  entry_ = &image_->library.get<const ctxb_plugin_entry_type>(entry_symbol);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::plugin_entry, "\"" + path_.string() + "\": ctxb_plugin_entry " + why);
  };
  if (!is_valid(entry_, CTXB_BYTES_THROUGH(ctxb_plugin_entry_type, abi_minor))) {
    refuse("has a size of " + std::to_string(entry_->size) + " bytes and cannot be read");
  }
  const LibraryBounds bounds(image_->code);
  if (const std::string other = bounds.other_at(entry_); !other.empty()) {
    throw Error(
        ErrorKind::plugin_entry,
        "\"" + path_.string() +
            "\" is not a ctxbroker plug-in: the ctxb_plugin_entry that it leads to lies in " +
            other + ". Give the path of the library that exports it");
  }
  // Nothing but size and major is looked at before they fit.
  if (entry_->abi_major != CTXB_ABI_MAJOR) {
    throw Error(ErrorKind::plugin_version,
                "\"" + path_.string() + "\" was built for plug-in ABI " +
                    std::to_string(entry_->abi_major) + "." + std::to_string(entry_->abi_minor) +
                    "; this host has " + std::to_string(CTXB_ABI_MAJOR) + "." +
                    std::to_string(CTXB_ABI_MINOR) +
                    ": get a build of the plug-in for it, or a newer host");
  }
  if (!is_valid(entry_, CTXB_BYTES_THROUGH(ctxb_plugin_entry_type, get_factory))) {
    refuse("has a size of " + std::to_string(entry_->size) + " bytes; version 1.0 has " +
           std::to_string(sizeof(ctxb_plugin_entry_type)));
  }
  if (entry_->init == nullptr || entry_->deinit == nullptr || entry_->get_factory == nullptr) {
    refuse("lacks a function: init, deinit or get_factory is null");
  }
}

void LoadedLibrary::call_init() {
  ctxb_status status = CTXB_ERROR;
  const std::string path = path_.string();
  const CallOutcome outcome =
      call_plugin(broker_.nowhere(), call("init"), [&] { status = entry_->init(path.c_str()); });
  say_replaced_handlers(*tenant());
  if (!outcome.ran() || status != CTXB_OK) {
    auto where = origin("init");
    where.status = status;
    where.status_name = status_name(status);
    throw Error(ErrorKind::plugin_init,
                "\"" + path + "\" cannot be initialised: its init " +
                    (outcome.threw ? "threw an exception" : "returned an error"),
                where);
  }
  initialised_ = true;
}

void LoadedLibrary::read_factory() {
  const std::string where = "\"" + path_.string() + "\"";
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::plugin_entry, where + ": " + why);
  };
  const void* given = nullptr;
  const ctxb_plugin_descriptor* descriptor = nullptr;
  std::uint32_t count = 0;
  if (!call_plugin(broker_.nowhere(), call("get_factory"),
                   [&] { given = entry_->get_factory(CTXB_PLUGIN_FACTORY_ID); })
           .ran() ||
      given == nullptr) {
    refuse(std::string("get_factory gives none for ") + CTXB_PLUGIN_FACTORY_ID);
  }
  const LibraryBounds bounds(image_->code);
  const auto check_own = [&](const void* data, const std::string& what) {
    const std::string other = bounds.other_at(data);
    if (!other.empty()) refuse(what + " lies in " + other + remedy_for_shared_data());
  };
  check_own(given, "its factory");
  const auto* factory = static_cast<const ctxb_plugin_factory*>(given);
  if (!is_valid(factory, CTXB_BYTES_THROUGH(ctxb_plugin_factory, create))) {
    refuse("the factory's size is not that of a ctxb_plugin_factory");
  }
  if (factory->count == nullptr || factory->describe == nullptr || factory->create == nullptr) {
    refuse("the factory lacks a function: count, describe or create is null");
  }
  if (!call_plugin(broker_.nowhere(), call("count"), [&] { count = factory->count(); }).ran() ||
      count == 0 || count > most_plugins) {
    refuse("the factory counts " + std::to_string(count) + " plug-ins");
  }
  bool unloadable = true;
  std::set<std::string> ids;
  for (std::uint32_t index = 0; index < count; ++index) {
    descriptor = nullptr;
    call_plugin(broker_.nowhere(), call("describe"),
                [&] { descriptor = factory->describe(index); });
    check_own(descriptor, "descriptor " + std::to_string(index));
    records_.push_back(read_descriptor(descriptor, where, &bounds));
    records_.back().description.library_path = path_.string();
    find_files(records_.back().modules, path_.parent_path());
    if (!ids.insert(records_.back().description.id).second) {
      refuse("two plug-ins have the id " + records_.back().description.id);
    }
    unloadable = unloadable && (records_.back().description.flags & CTXB_PLUGIN_UNLOADABLE) != 0;
    descriptions_.push_back(records_.back().description);
  }
  factory_ = factory;
  unloadable_ = unloadable;
  if (!unloadable) keep_resident(path_);  // whoever closes it, from now on
}

std::size_t LoadedLibrary::index_of(std::string_view plugin) const {
  if (plugin.empty() && descriptions_.size() == 1) return 0;
  const auto find = [&](auto matches) {
    return static_cast<std::size_t>(
        std::find_if(descriptions_.begin(), descriptions_.end(), matches) - descriptions_.begin());
  };
  std::size_t index = find([&](const auto& one) { return one.id == plugin; });
  if (index == descriptions_.size()) {
    index = find([&](const auto& one) { return one.short_name == plugin; });
  }
  if (index == descriptions_.size()) {
    std::string known;
    for (const auto& one : descriptions_) known += (known.empty() ? "" : ", ") + one.short_name;
    throw Error(ErrorKind::plugin_not_found,
                "library " + tenant()->name +
                    (plugin.empty() ? " has several plug-ins; name one of: "
                                    : " has no plug-in \"" + std::string(plugin) + "\"; it has: ") +
                    known);
  }
  return index;
}

}  // namespace ctxbroker::detail

namespace ctxbroker {

PluginLibrary::PluginLibrary(std::shared_ptr<detail::LoadedLibrary> impl)
    : impl_(std::move(impl)) {}

const std::vector<PluginDescription>& PluginLibrary::plugins() const& noexcept {
  return impl_->descriptions();
}

const std::filesystem::path& PluginLibrary::path() const& noexcept {
  return impl_->path();
}

const std::string& PluginLibrary::name() const& noexcept {
  return impl_->tenant()->name;
}

TenantId PluginLibrary::tenant() const noexcept {
  return impl_->tenant()->id;
}

}  // namespace ctxbroker
