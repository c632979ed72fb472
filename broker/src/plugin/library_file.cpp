// SPDX-License-Identifier: Apache-2.0
#include "plugin/library_file.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ctxbroker/error.hpp"
#include "gate/gate.hpp"
#include "gate/loaded_objects.hpp"
#include "gate/loader_exception.hpp"
#include "image/elf.hpp"

namespace ctxbroker::detail {
namespace {

// A plug-in that closes another one's library too often takes these, and not the last count.
constexpr int spare_counts = 8;

bool is_this_program(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::equivalent(path, "/proc/self/exe", error) && !error;
}

// The text of the last dlopen; Boost.DLL's own error code has lost it.
std::string loader_text(const boost::dll::fs::error_code& error) {
  const char* text =
      dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc we run on
  return text != nullptr ? text : error.message();
}

// "undefined symbol: NAME", and perhaps ", version VERSION".
std::string missing_symbol(const std::string& text) {
  constexpr std::string_view before = "undefined symbol: ";
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + before.size();
  return text.substr(begin, text.find_first_of(", \t)", begin) - begin);
}

// The loader's text begins with the file that it could not open.
std::string what_to_do(const std::string& text, const std::filesystem::path& canonical) {
  if (const std::string why = why_symbol_is_missing(missing_symbol(text)); !why.empty()) {
    return "; " + why;
  }
  const bool of_another = text.compare(0, canonical.native().size(), canonical.native()) != 0;
  if (!of_another || text.find("cannot open shared object file") == std::string::npos) return {};
  return "; install that library, or name its folder in LD_LIBRARY_PATH";
}

// The loader maps what the program headers promise without a check, and the process ends with a bus
// error when a truncated file does not hold it. Returns what is missing, in words; nothing for a
// whole file and for a file that is not 64-bit ELF, which the loader refuses itself.
std::optional<std::string> find_truncation(const std::filesystem::path& library) {
  const image::ElfOnDisk file(library);
  const std::uint64_t size = file.size();
  const auto head = file.header();
  if (!head || head->e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  for (std::uint32_t i = 0; i < head->e_phnum; ++i) {
    const auto segment = file.segment(*head, i, head->e_phentsize);
    if (!segment) return "its program headers are cut off";
    if (segment->p_type != PT_LOAD) continue;
    if (segment->p_offset > size || segment->p_filesz > size - segment->p_offset) {
      return "a segment of " + std::to_string(segment->p_filesz) + " bytes at " +
             std::to_string(segment->p_offset) + " is cut off, the file ends at " +
             std::to_string(size);
    }
  }
  return std::nullopt;
}

}  // namespace

std::filesystem::path canonical_library(const std::filesystem::path& path) {
  std::error_code error;
  auto canonical = std::filesystem::canonical(path, error);
  if (error) {
    throw Error(ErrorKind::plugin_not_found,
                "there is no plug-in library \"" + path.string() + "\": " + error.message());
  }
  if (!std::filesystem::is_regular_file(canonical, error)) {
    throw Error(ErrorKind::plugin_load, "\"" + path.string() + "\" is not a file");
  }
  return canonical;
}

FileId file_id(const std::filesystem::path& canonical) {
  struct stat status {};
  if (stat(canonical.c_str(), &status) != 0) {
    throw Error(ErrorKind::plugin_not_found,
                "plug-in library \"" + canonical.string() +
                    "\" cannot be read: " + std::generic_category().message(errno));
  }
  return {status.st_dev, status.st_ino};
}

namespace {

// The loader looks for the name that a library was opened by before it looks at the file. It is not
// asked itself, because it may be waiting for a constructor.
bool is_loaded_by_name(const std::filesystem::path& canonical) {
  const std::vector<LoadedObject> present = loaded_objects();
  return std::any_of(present.begin(), present.end(),
                     [&](const LoadedObject& one) { return one.path == canonical.native(); });
}

}  // namespace

LoadedFiles::File LoadedFiles::find(const std::filesystem::path& canonical) {
  const FileId id = file_id(canonical);
  const std::lock_guard lock(mutex_);
  FileId& known = ids_.try_emplace(canonical, id).first->second;
  if (known != id && is_loaded_by_name(canonical)) return {known, true};
  known = id;
  return {id, false};
}

std::string replaced_text(const std::filesystem::path& canonical) {
  return canonical.string() +
         " has been replaced since it was loaded, and the old library is still in the process, "
         "which goes on with that; start the process again to use the new file";
}

std::string library_name(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  name = name.substr(0, name.find(".so"));
  if (name.size() > 3 && name.compare(0, 3, "lib") == 0) name.erase(0, 3);
  return name;
}

boost::dll::shared_library load_library(const std::filesystem::path& canonical,
                                        const AdoptOptions& options, const TenantIdentity* tenant,
                                        const std::string& hint,
                                        const std::function<void()>& then) {
  // Boost.DLL would open the program itself in its place.
  if (is_this_program(canonical)) {
    throw Error(ErrorKind::plugin_load, "\"" + canonical.string() + "\" is this program itself");
  }
  if (const auto missing = find_truncation(canonical)) {
    throw Error(ErrorKind::plugin_load, "plug-in library \"" + canonical.string() +
                                            "\" is truncated: " + *missing +
                                            "; build or copy it again");
  }
  // Unless the host wants it otherwise, a plug-in that lacks a symbol is refused now, and not in
  // mid-work.
  const int mode =
      (options.lazy ? RTLD_LAZY : RTLD_NOW) | (options.global ? RTLD_GLOBAL : RTLD_LOCAL);
  void* const opened = open_or_end(canonical.c_str(), mode, tenant);
  if (then) then();
  boost::dll::shared_library library;
  boost::dll::fs::error_code error;
  if (opened != nullptr) {
    library.load(boost::dll::fs::path(canonical.native()), error,
                 boost::dll::load_mode::rtld_lazy | boost::dll::load_mode::rtld_local);
  }
  if (!library.is_loaded()) {
    const std::string text = loader_text(error);
    if (opened != nullptr) close_or_end(opened, canonical.c_str(), tenant);
    throw Error(ErrorKind::plugin_load,
                "plug-in library \"" + canonical.string() + "\" cannot be loaded: " + text +
                    what_to_do(text, canonical) + hint,
                {.call = "dlopen", .tenant = library_name(canonical)});
  }
  // This call's own count is one of them.
  for (int count = 1; count < spare_counts; ++count) {
    dlopen(canonical.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  }
  return library;
}

bool unload_library(boost::dll::shared_library& library, const std::filesystem::path& canonical,
                    const TenantIdentity* tenant) noexcept {
  // Destructors run in the close that takes the last count.
  void* const handle = dlopen(canonical.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  library.unload();
  if (handle == nullptr) return false;
  for (int count = 0; count < spare_counts; ++count) {
    close_or_end(handle, canonical.c_str(), tenant);
    void* const still_there = dlopen(canonical.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (still_there == nullptr) return false;
    dlclose(still_there);
  }
  close_or_end(handle, canonical.c_str(), tenant);
  return true;
}

bool is_loaded(const std::filesystem::path& canonical) noexcept {
  void* const library = dlopen(canonical.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);  // this call's count only
  return library != nullptr;
}

void keep_resident(const std::filesystem::path& canonical) noexcept {
  void* again = dlopen(canonical.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (again != nullptr) dlclose(again);  // takes back this call's count only
}

}  // namespace ctxbroker::detail
