// SPDX-License-Identifier: Apache-2.0
#include "driver/driver_file.hpp"

#include <dlfcn.h>
#include <link.h>

#include <system_error>

#include "driver/library_symbol.h"

namespace ctxbroker::detail {
namespace {

constexpr const char* software_device_file = "ctxbroker/libctxbroker_software_device.so";

std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&nvidia_driver_name), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return path.empty() ? std::filesystem::path(info.dli_fname).parent_path() : path.parent_path();
}

}  // namespace

const char* nvidia_driver_name() noexcept {
  return "libcuda.so.1";
}

LoadedFile load_driver_file(const std::filesystem::path& name) {
  LoadedFile file;
  file.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file.handle != nullptr) {
    file.path = loaded_path(file.handle, name);
  } else {
    const char* text =
        dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc we run on
    file.error = text != nullptr ? text : "the loader gave no reason";
  }
  return file;
}

std::string loaded_path(void* handle, const std::filesystem::path& asked) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr &&
      *map->l_name != '\0') {
    return map->l_name;
  }
  return asked.string();
}

void* find_symbol(void* library, const char* symbol) noexcept {
  return ctxb_own_symbol(library, symbol);
}

std::filesystem::path beside_this_library(const char* name) {
  const auto folder = own_folder();
  const auto above = folder.parent_path();
  const std::filesystem::path candidates[] = {folder / name, above / "lib" / name,
                                              above / "bin" / name,
                                              above.parent_path() / "bin" / name};
  std::error_code ignored;
  for (const auto& candidate : candidates) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return candidates[0];
}

std::filesystem::path default_software_device() {
  return beside_this_library(software_device_file);
}

}  // namespace ctxbroker::detail
