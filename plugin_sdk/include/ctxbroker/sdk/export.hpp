// SPDX-License-Identifier: Apache-2.0
/// @file
/// The library's entry: one line for any number of plug-ins.
#pragma once

#include <cstdint>
#include <cstring>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/local.hpp"
#include "ctxbroker/sdk/thunks.hpp"

namespace ctxbroker::sdk {

/// The C tables of a library that holds these plug-ins, as constant data. CTXB_EXPORT_PLUGINS uses
/// it. A library that writes its own entry can use it too. The functions are those of plugin.h.
template <class... Plugins>
struct CTXB_SDK_LOCAL Library {
  static_assert(sizeof...(Plugins) >= 1, "a library holds at least one plug-in");

  static std::uint32_t count() { return static_cast<std::uint32_t>(sizeof...(Plugins)); }

  static const ctxb_plugin_descriptor* describe(std::uint32_t index) {
    // Copies: another library's class of the same name may have taken the place of the original.
    static const ctxb_plugin_descriptor all[] = {Plugins::descriptor.raw()...};
    return index < sizeof...(Plugins) ? &all[index] : nullptr;
  }

  static const ctxb_plugin* create(std::uint32_t index, const ctxb_host* host) {
    static constexpr const ctxb_plugin* (*all[])(const ctxb_host*) = {
        &detail::Thunks<Plugins>::create...};
    if (host == nullptr || host->abi_major != CTXB_ABI_MAJOR) {
      return nullptr;
    }
    if (index >= sizeof...(Plugins)) {
      host->fail(host, CTXB_ERROR_INVALID_ARGUMENT, 0,
                 "the library has no plug-in with that index");
      return nullptr;
    }
    return all[index](host);
  }

  static ctxb_status init(const char*) { return CTXB_OK; }
  static void deinit() {}

  static const void* get_factory(const char* id) {
    static constexpr ctxb_plugin_factory factory{sizeof(ctxb_plugin_factory), count, describe,
                                                 create};
    return std::strcmp(id, CTXB_PLUGIN_FACTORY_ID) == 0 ? &factory : nullptr;
  }

  static constexpr ctxb_plugin_entry_type entry{
      sizeof(ctxb_plugin_entry_type), CTXB_ABI_MAJOR, CTXB_ABI_MINOR, init, deinit, get_factory};
};

}  // namespace ctxbroker::sdk

/// Exports plug-ins. Write it once per library, in the global namespace:
/// CTXB_EXPORT_PLUGINS(Exposure, Blur).
#define CTXB_EXPORT_PLUGINS(...) \
  const ctxb_plugin_entry_type ctxb_plugin_entry = ctxbroker::sdk::Library<__VA_ARGS__>::entry;
