#include "gate/tenant_imports.hpp"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gate/code_map.hpp"
#include "gate/import_patch.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {
namespace {

struct Led {
  bool late = false;
  std::vector<Import> imports;  // by name
};
std::atomic<const Led*> led{nullptr};  // set once, and never freed

std::uintptr_t address_of(ctxb_gate_function function) noexcept {
  return reinterpret_cast<std::uintptr_t>(function);
}

struct Patch {
  std::vector<Extent> code;  // the tenant's
  const std::vector<Import>& imports;
  PatchResult result{};
};

int patch_if_of_tenant(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Patch& patch = *static_cast<Patch*>(given);
  if (std::find(patch.code.begin(), patch.code.end(), extent_of(*object)) != patch.code.end()) {
    const PatchResult one = patch_imports(*object, patch.imports);
    patch.result.changed += one.changed;
    patch.result.refused += one.refused;
  }
  return 0;
}

// A library that was led before has nothing left to be changed.
void lead_imports_of(GatedTenant& tenant, const Led& all) noexcept {
  try {
    static std::mutex patching;
    const std::lock_guard lock(patching);
    Patch patch{code_of(tenant), all.imports};
    dl_iterate_phdr(patch_if_of_tenant, &patch);
    if (patch.result.changed != 0 && all.late) {
      tenant.identity().log(Severity::info, "gate",
                            "led " + std::to_string(patch.result.changed) +
                                " imports of the tenant's libraries to the gate, which came after "
                                "the driver");
    }
    if (patch.result.refused != 0) {
      tenant.identity().log(Severity::warning, "gate",
                            std::to_string(patch.result.refused) +
                                " imports of the tenant's libraries lead past the gate: the system "
                                "lets nobody write there");
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: they lead where they did
  }
}

const void* before_return(const void* caller) noexcept {
  return static_cast<const char*>(caller) - 1;
}

// Answers with the tenant whose code opens the file, or with null where the loader's answer depends
// on who asks.
void* before_open(const char* file, const void* caller) noexcept {
  try {
    GatedTenant* const tenant = owner_of_code(before_return(caller)).tenant;
    if (tenant == nullptr || file == nullptr) return nullptr;
    const std::string_view name = file;
    if (name.find('$') != std::string_view::npos) return nullptr;  // "$ORIGIN" is the caller's
    const bool is_driver = name.starts_with("libcuda.so");         // the gate's, wherever that is
    const bool is_searched_for = name.find('/') == std::string_view::npos && !is_driver;
    if (is_searched_for && has_run_path(*tenant)) return nullptr;
    record_code_before_open();
    return tenant;
  } catch (...) {  // out of memory: what is opened is nobody's
    return nullptr;
  }
}

void after_open(void* answer, void* library) noexcept {
  if (library == nullptr) return;
  GatedTenant& tenant = *static_cast<GatedTenant*>(answer);
  try {
    record_opened_code(tenant, library);
  } catch (...) {  // out of memory: it is nobody's
    return;
  }
  lead_imports_of(tenant, *led.load(std::memory_order_acquire));
}

}  // namespace

void start_leading_imports(const ctxb_gate& gate, bool late) {
  auto* const made = new Led{late, {}};  // never freed
  made->imports.push_back({"dlopen", 0, address_of(gate.watched_dlopen)});
  if (late) {
    made->imports.push_back({"dlsym", 0, address_of(gate.late_dlsym)});
    made->imports.push_back({"dlvsym", 0, address_of(gate.late_dlvsym)});
    for (std::uint32_t index = 0; index < gate.count; ++index) {
      const ctxb_gate_entry& entry = gate.entries[index];
      const std::uintptr_t of = address_of(gate.driver_function(index));
      if (entry.guarded == 0 || of == 0) continue;
      made->imports.push_back({entry.symbol, of, address_of(gate.exported_function(index))});
    }
  }
  std::sort(made->imports.begin(), made->imports.end(),
            [](const Import& a, const Import& b) { return a.name < b.name; });
  led.store(made, std::memory_order_release);
  gate.observe_opens(before_open, after_open);
}

void lead_imports(GatedTenant& tenant, void* library) noexcept {
  const Led* const all = led.load(std::memory_order_acquire);
  if (all == nullptr) return;
  if (all->late && owner_of_code(address_in(library)).tenant == nullptr) {
    tenant.identity().log(Severity::warning, "gate",
                          "the library was in the process before it was loaded for the tenant: the "
                          "gate, which came after the driver, does not hold its calls");
  }
  lead_imports_of(tenant, *all);
}

}  // namespace ctxbroker::detail
