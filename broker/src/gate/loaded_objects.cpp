// SPDX-License-Identifier: Apache-2.0
#include "gate/loaded_objects.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace ctxbroker::detail {
namespace {

void read_dynamic(const dl_phdr_info& info, const ElfW(Dyn) * dynamic, LoadedObject& object) {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_STRTAB) continue;
    // The loader has made it an address, or on some systems left it an offset.
    const ElfW(Addr) at = entry->d_un.d_ptr;
    strings = reinterpret_cast<const char*>(at < info.dlpi_addr ? info.dlpi_addr + at : at);
  }
  if (strings == nullptr) return;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED) object.needed.emplace_back(strings + entry->d_un.d_val);
    object.has_run_path |= entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH;
    if (entry->d_tag == DT_SONAME) object.name = strings + entry->d_un.d_val;
  }
}

struct Listing {
  std::vector<LoadedObject> all;
  bool is_program = true;  // the first one
  unsigned long long changes = 0;
  std::exception_ptr failed;
};

void add(const dl_phdr_info& info, Listing& listing) {
  const bool is_program = std::exchange(listing.is_program, false);
  const Extent extent = extent_of(info);
  if (extent.end == 0) return;
  LoadedObject object;
  object.begin = extent.begin;
  object.end = extent.end;
  if (info.dlpi_name != nullptr) object.path = info.dlpi_name;
  object.name = object.path.substr(object.path.rfind('/') + 1);
  // The kernel's own object has a table that the loader did not move.
  const bool is_file = is_program || object.path.find('/') != std::string::npos;
  for (const ElfW(Phdr) & header : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    if (header.p_type != PT_DYNAMIC || !is_file) continue;
    read_dynamic(info, reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + header.p_vaddr), object);
  }
  listing.all.push_back(std::move(object));
}

unsigned long long changes_in(const dl_phdr_info& info, std::size_t bytes) noexcept {
  const bool says = bytes >= offsetof(dl_phdr_info, dlpi_subs) + sizeof info.dlpi_subs;
  return says ? info.dlpi_adds + info.dlpi_subs : 0;
}

int add_to_listing(dl_phdr_info* info, std::size_t bytes, void* given) noexcept {
  Listing& listing = *static_cast<Listing*>(given);
  try {
    listing.changes = changes_in(*info, bytes);
    add(*info, listing);
    return 0;
  } catch (...) {
    listing.failed = std::current_exception();
    return 1;
  }
}

int count(dl_phdr_info* info, std::size_t bytes, void* given) noexcept {
  *static_cast<unsigned long long*>(given) = changes_in(*info, bytes);
  return 1;  // every object has the same numbers
}

// A file's part in the process.
struct Mapping {
  std::uintptr_t end;
  std::string file;
};
using Mappings = std::map<std::uintptr_t, Mapping>;  // by where they begin

// Takes "7f00-7f10 r--p 00000000 fe:01 123    /path" apart. Memory that is no file's has no path.
void add_mapping(std::string_view line, Mappings& mappings) {
  constexpr std::string_view gone = " (deleted)";
  const std::size_t path = line.find('/');
  std::uintptr_t begin = 0, end = 0;
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (path == std::string_view::npos || first.ptr == last) return;
  if (std::from_chars(first.ptr + 1, last, end, 16).ec != std::errc()) return;
  line.remove_prefix(path);
  if (line.ends_with(gone)) line.remove_suffix(gone.size());
  mappings.try_emplace(begin, Mapping{end, std::string(line)});
}

}  // namespace

Extent extent_of(const dl_phdr_info& object) noexcept {
  Extent extent{UINTPTR_MAX, 0};
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t at = object.dlpi_addr + part.p_vaddr;
    extent.begin = std::min(extent.begin, at);
    extent.end = std::max(extent.end, at + part.p_memsz);
  }
  return extent;
}

Extent extent_at(const void* address) noexcept {
  struct Search {
    std::uintptr_t address;
    Extent found;
  } search{reinterpret_cast<std::uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* given) {
        auto& sought = *static_cast<Search*>(given);
        const Extent extent = extent_of(*info);
        if (sought.address < extent.begin || sought.address >= extent.end) return 0;
        sought.found = extent;
        return 1;
      },
      &search);
  return search.found;
}

const void* address_in(void* library) noexcept {
  link_map* object = nullptr;
  const bool known = dlinfo(library, RTLD_DI_LINKMAP, &object) == 0 && object != nullptr;
  return known ? object->l_ld : nullptr;
}

bool needs(const LoadedObject& user, const LoadedObject& one) noexcept {
  return std::find(user.needed.begin(), user.needed.end(), one.name) != user.needed.end();
}

std::vector<LoadedObject> loaded_objects(unsigned long long* changes) {
  Listing listing;
  dl_iterate_phdr(add_to_listing, &listing);
  if (listing.failed) std::rethrow_exception(listing.failed);
  if (changes != nullptr) *changes = listing.changes;
  return std::move(listing.all);
}

void name_files(std::vector<LoadedObject>& objects) {
  Mappings mappings;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) add_mapping(line, mappings);
  for (LoadedObject& one : objects) {
    const auto after = mappings.upper_bound(one.begin);  // an object begins anywhere in a page
    if (one.path.find('/') == std::string::npos || after == mappings.begin()) continue;
    const Mapping& mapping = std::prev(after)->second;
    if (one.begin < mapping.end) one.file = mapping.file;
  }
}

std::string real_file(const LoadedObject& object) {
  if (!object.file.empty()) return object.file;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(object.path, error);
  return error ? object.path : real.native();
}

unsigned long long changes_so_far() noexcept {
  unsigned long long changes = 0;
  dl_iterate_phdr(count, &changes);
  return changes;
}

}  // namespace ctxbroker::detail
