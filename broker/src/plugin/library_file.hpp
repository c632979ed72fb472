// SPDX-License-Identifier: Apache-2.0
// A plug-in's shared library as a file and as a loaded image. The operating system's part of
// loading plug-ins; Boost.DLL does the loading.
#pragma once

#include <boost/dll/shared_library.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "context/tenant_identity.hpp"
#include "ctxbroker/tenant.hpp"

namespace ctxbroker::detail {

// Identifies a file whatever path led to it.
using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode

// Returns the file behind `path` with every link followed. Throws Error (plugin_not_found) when
// there is none.
std::filesystem::path canonical_library(const std::filesystem::path& path);
FileId file_id(const std::filesystem::path& canonical);

// Remembers which file each path led to when it was loaded. A path that leads to another file by
// now, as after an update, still gets the loader's old library while that is in the process. Any
// thread.
class LoadedFiles {
 public:
  struct File {
    FileId id;  // of the file that the loader has, or will read
    bool is_replaced = false;
  };
  // Call it before the file is loaded. Throws Error (plugin_not_found).
  File find(const std::filesystem::path& canonical);

 private:
  std::mutex mutex_;
  std::map<std::filesystem::path, FileId> ids_;
};
std::string replaced_text(const std::filesystem::path& canonical);

// Returns the tenant's name: the file name without "lib" and suffix.
std::string library_name(const std::filesystem::path& path);

// Loads the library. Throws Error (plugin_load) with the loader's text. Ends the process, with the
// library's name, if a static constructor throws. `hint`: what else may be the reason, for the end
// of the error's text. The image stays if others close it a few times too often. `then` is called
// as soon as the loader is done, also if it has refused the file.
boost::dll::shared_library load_library(const std::filesystem::path& canonical,
                                        const AdoptOptions& options = {},
                                        const TenantIdentity* tenant = nullptr,
                                        const std::string& hint = {},
                                        const std::function<void()>& then = {});
// Lets it go. Returns false if others have closed it too often. Ends the process, with the
// library's name, if a static destructor throws.
bool unload_library(boost::dll::shared_library& library, const std::filesystem::path& canonical,
                    const TenantIdentity* tenant) noexcept;

// Returns whether the loader has the file already, by whatever name.
bool is_loaded(const std::filesystem::path& canonical) noexcept;

// Keeps the image in the process until the process ends, whoever closes it.
void keep_resident(const std::filesystem::path& canonical) noexcept;

}  // namespace ctxbroker::detail
