#include "gate/open_watch.hpp"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string_view>
#include <vector>

#include "gate/code_map.hpp"
#include "gate/extent.hpp"
#include "gate/late_gate.hpp"
#include "gate/object_patch.hpp"

namespace ctxbroker::detail {
namespace {

std::atomic<std::uintptr_t> watched_dlopen{0};

const void* before_return(const void* caller) noexcept {
  return static_cast<const char*>(caller) - 1;
}

// The tenant whose code it is, if it makes no difference to the loader who opens that file.
void* before_open(const char* file, const void* caller) noexcept {
  try {
    GatedTenant* const tenant = owner_of_code(before_return(caller)).tenant;
    if (tenant == nullptr || file == nullptr) return nullptr;
    const std::string_view name = file;
    if (name.find('$') != std::string_view::npos) return nullptr;  // "$ORIGIN" is the caller's
    const bool is_driver = name.starts_with("libcuda.so");         // the gate's, wherever that is
    const bool is_searched_for = name.find('/') == std::string_view::npos && !is_driver;
    if (is_searched_for && has_run_path(*tenant)) return nullptr;
    note_code_before_open();
    return tenant;
  } catch (...) {  // out of memory: what is opened is nobody's
    return nullptr;
  }
}

void after_open(void* answer, void* library, const void* caller) noexcept {
  if (library == nullptr) return;
  GatedTenant& tenant = *static_cast<GatedTenant*>(answer);
  try {
    note_opened_code(tenant, library, before_return(caller));
  } catch (...) {  // out of memory: it is nobody's
    return;
  }
  watch_opens(tenant);
  lead_opened_to_gate(tenant);
}

struct Patch {
  const std::vector<Extent>& code;
  const ImportReplacement import;
};

int patch_if_of_tenant(dl_phdr_info* object, std::size_t, void* given) noexcept {
  const Patch& patch = *static_cast<const Patch*>(given);
  if (std::find(patch.code.begin(), patch.code.end(), extent_of(*object)) != patch.code.end()) {
    patch_object(*object, {}, {&patch.import, 1});
  }
  return 0;
}

}  // namespace

void start_open_watch(const ctxb_gate& gate) noexcept {
  gate.observe_opens(before_open, after_open);
  watched_dlopen.store(reinterpret_cast<std::uintptr_t>(gate.watched_dlopen));
}

void watch_opens(GatedTenant& tenant) noexcept {
  const std::uintptr_t by = watched_dlopen.load();
  if (by == 0) return;
  try {
    // One at a time: what the loader has made read-only is open for as long as that takes.
    static std::mutex patching;
    const std::lock_guard lock(patching);
    const std::vector<Extent> code = code_of(tenant);
    Patch patch{code, {"dlopen", by}};
    dl_iterate_phdr(patch_if_of_tenant, &patch);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: what they open is nobody's
  }
}

}  // namespace ctxbroker::detail
