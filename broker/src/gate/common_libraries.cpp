// SPDX-License-Identifier: Apache-2.0
#include "gate/common_libraries.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {
namespace {

constexpr std::string_view thread_starters[] = {"libc.so.6", "libpthread.so.0", "libstdc++.so.6",
                                                "libc++.so.1"};

// The beginnings of names.
constexpr std::string_view callers_for_others[] = {"ld-linux",
                                                   "linux-vdso.so.",
                                                   "libc.so.",
                                                   "libpthread.so.",
                                                   "librt.so.",
                                                   "libanl.so.",
                                                   "libgcc_s.so.",
                                                   "libgomp.so",
                                                   "libomp.so",
                                                   "libiomp5.so",
                                                   "libstdc++.so.",
                                                   "libc++.so.",
                                                   "libc++abi.",
                                                   "libasan.so",
                                                   "libtsan.so",
                                                   "libcuda.so",
                                                   "libctxbroker_software_device.so"};

// Asks the loader, because the map of code may be older than the library.
template <typename Fits>
bool is_code_of_any(const void* address, Fits&& fits) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::vector<LoadedObject> present = loaded_objects();
  return std::any_of(present.begin(), present.end(),
                     [&](const LoadedObject& one) { return holds(one, at) && fits(one); });
}

}  // namespace

bool is_starter(const LoadedObject& object) noexcept {
  return std::find(std::begin(thread_starters), std::end(thread_starters), object.name) !=
         std::end(thread_starters);
}

bool calls_for_others(const LoadedObject& object) noexcept {
  return std::any_of(std::begin(callers_for_others), std::end(callers_for_others),
                     [&](std::string_view name) { return object.name.starts_with(name); });
}

bool is_code_that_calls_for_others(const void* address) {
  return is_code_of_any(address, calls_for_others);
}

bool is_hosts_code(const void* address) {
  return is_code_of_any(address, [](const LoadedObject& one) { return !calls_for_others(one); });
}

}  // namespace ctxbroker::detail
