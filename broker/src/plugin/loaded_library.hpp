// SPDX-License-Identifier: Apache-2.0
// One plug-in library in memory: a tenant with its entry, its factory and what its plug-ins say of
// themselves.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "context/guard.hpp"
#include "context/tenant_identity.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"
#include "ctxbroker/plugin_description.hpp"
#include "plugin/descriptor_reader.hpp"
#include "plugin/library_file.hpp"
#include "plugin/tenant_impl.hpp"
#include "process/turn.hpp"

namespace ctxbroker::detail {

class BrokerImpl;

// [main] thread. Its end calls the library's deinit and, where the library allows it, unloads it.
class LoadedLibrary {
 public:
  // `canonical` is the file. Throws Error: plugin_load, plugin_entry, plugin_version, plugin_init.
  LoadedLibrary(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> tenant,
                std::filesystem::path canonical);
  ~LoadedLibrary();
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  const char* lasting_path() const noexcept { return lasting_path_; }  // see lasting()
  const std::shared_ptr<const TenantIdentity>& tenant() const noexcept {
    return tenant_.identity();
  }
  const std::vector<PluginDescription>& descriptions() const noexcept { return descriptions_; }
  const PluginRecord& record(std::size_t index) const { return records_[index]; }
  const ctxb_plugin_factory& factory() const noexcept { return *factory_; }
  void end_lost_contexts() noexcept { tenant_.end_lost_contexts(); }
  BrokerImpl& broker() const noexcept { return broker_; }

  // Threads take turns in the [main] functions of its plug-ins. Others wait no longer than
  // `end_timeout`. Taken before all locks of the broker.
  Turns& main_turns() noexcept { return main_turns_; }

  // Held around process by plug-ins that allow one at a time in their whole library.
  std::mutex& process_mutex() noexcept { return process_mutex_; }

  // Index of the plug-in with this id or short name. Throws Error (plugin_not_found), with those
  // that there are.
  std::size_t index_of(std::string_view plugin) const;

 private:
  void read_entry();
  void call_init();
  void read_factory();
  void end() noexcept;
  GuardedCall call(const char* function) const noexcept {
    return {.tenant = tenant().get(), .function = function, .library = lasting_path_};
  }
  Error::Origin origin(const char* function) const;

  BrokerImpl& broker_;
  TenantImpl tenant_;
  std::filesystem::path path_;
  const char* const lasting_path_;
  std::shared_ptr<LibraryImage> image_;
  const ctxb_plugin_entry_type* entry_ = nullptr;
  const ctxb_plugin_factory* factory_ = nullptr;
  std::vector<PluginRecord> records_;
  std::vector<PluginDescription> descriptions_;  // the records', in the form that hosts see
  Turns main_turns_;
  std::mutex process_mutex_;
  bool initialised_ = false;
  bool unloadable_ = false;
};

}  // namespace ctxbroker::detail
