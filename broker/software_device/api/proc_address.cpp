// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: a function by base name, CUDA version and default stream.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "api/entry.hpp"
#include "api/entry_points.h"
#include "api/logs.hpp"

using namespace ctxbroker::software;

namespace {

using EntryPoint = ctxb_entry_point;

// Sorted by base name; made once, as look-ups come by the hundred.
const std::vector<const EntryPoint*>& by_base() {
  static const std::vector<const EntryPoint*>& sorted = *[] {
    auto* all = new std::vector<const EntryPoint*>;
    for (unsigned i = 0; i < ctxb_entry_point_count; ++i) {
      if (ctxb_entry_points[i].version <= CTXB_NEWEST_CUDA) all->push_back(&ctxb_entry_points[i]);
    }
    std::stable_sort(all->begin(), all->end(), [](const EntryPoint* a, const EntryPoint* b) {
      return std::strcmp(a->base, b->base) < 0;
    });
    return all;
  }();
  return sorted;
}

struct Found {
  void* address = nullptr;
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

// The newest variant that is not newer than `version`. Of a function that has variants for the
// per-thread default stream only those count, when they are asked for.
Found look_up(std::string_view name, int version, bool per_thread) {
  const auto& sorted = by_base();
  auto first = std::lower_bound(
      sorted.begin(), sorted.end(), name,
      [](const EntryPoint* entry, std::string_view wanted) { return entry->base < wanted; });
  auto last = std::find_if(first, sorted.end(),
                           [&](const EntryPoint* entry) { return entry->base != name; });
  if (first == last) return {};
  auto is_per_thread = [](const EntryPoint* entry) { return entry->per_thread != 0; };
  bool wanted_kind = per_thread && std::any_of(first, last, is_per_thread);
  const EntryPoint* best = nullptr;
  for (auto entry = first; entry != last; ++entry)
    if (is_per_thread(*entry) == wanted_kind && (*entry)->version <= version &&
        (best == nullptr || (*entry)->version > best->version))
      best = *entry;
  if (best == nullptr) return {nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT};
  return {reinterpret_cast<void*>(best->address), CU_GET_PROC_ADDRESS_SUCCESS};
}

Found look_up_checked(const char* name, void** address, int version, cuuint64_t flags) {
  constexpr cuuint64_t known =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  check_value(name != nullptr && address != nullptr);
  check_value(version <= cuda_version && (flags & ~known) == 0);
  return look_up(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

CTXB_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** address, int version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult* result) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    Found found = look_up_checked(name, address, version, flags);
    *address = found.address;
    if (result != nullptr) *result = found.result;
  });
}

// The form before CUDA 12: what is not found is an error.
CTXB_EXPORT CUresult cuGetProcAddress(const char* name, void** address, int version,
                                      cuuint64_t flags) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    Found found = look_up_checked(name, address, version, flags);
    check_that(found.address != nullptr, CUDA_ERROR_NOT_FOUND);
    *address = found.address;
  });
}

// The driver's private tables, which the runtime library asks for at its start. Its user sees no
// more than an error number, and so the reason goes to the standard error too.
CTXB_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid* identity) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(table != nullptr && identity != nullptr);
    static std::once_flag told;
    std::call_once(told, [] {
      constexpr const char* text =
          "NVIDIA's runtime library (cuda* functions, <<<>>>) does not work on ctxbroker's "
          "software "
          "device, because it needs private tables of NVIDIA's driver; use the driver API (cu* "
          "functions) or give ctxbroker the kernels as data here, or use a machine with an NVIDIA "
          "GPU";
      std::fprintf(stderr, "%s\n", text);
      log_error(text);
    });
    fail(CUDA_ERROR_NOT_SUPPORTED);
  });
}
