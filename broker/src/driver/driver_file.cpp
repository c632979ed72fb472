// SPDX-License-Identifier: Apache-2.0
#include "driver/driver_file.hpp"

#include <dlfcn.h>
#include <link.h>

#include "driver/library_symbol.h"
#include "process/own_files.hpp"

namespace ctxbroker::detail {
namespace {

constexpr const char* software_device_file = "ctxbroker/libctxbroker_software_device.so";

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

std::filesystem::path default_software_device() {
  return beside_this_library(software_device_file);
}

}  // namespace ctxbroker::detail
