// SPDX-License-Identifier: Apache-2.0
#include "gate/common_libraries.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

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

}  // namespace

bool is_starter(const LoadedObject& object) noexcept {
  return std::find(std::begin(thread_starters), std::end(thread_starters), object.name) !=
         std::end(thread_starters);
}

bool calls_for_others(const LoadedObject& object) noexcept {
  return std::any_of(std::begin(callers_for_others), std::end(callers_for_others),
                     [&](std::string_view name) { return object.name.starts_with(name); });
}

}  // namespace ctxbroker::detail
