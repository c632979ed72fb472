#include "gate/late_gate.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gate/code_map.hpp"
#include "gate/extent.hpp"
#include "gate/gated_tenant.hpp"
#include "gate/object_patch.hpp"

namespace ctxbroker::detail {

namespace {

// A tenant whose code calls nothing that is guarded is not looked at for ever.
constexpr int most_looks = 16;

struct Late {
  Replacements guarded;  // functions of the driver
  Replacements words;    // and the loader's look-ups
  std::array<ImportReplacement, 2> imports;
};
const Late* late = nullptr;  // never ended; written once, before any tenant has a library

std::uintptr_t address_of(ctxb_gate_function function) noexcept {
  return reinterpret_cast<std::uintptr_t>(function);
}

// Every guarded function of the driver. An address that several functions of different meaning
// share (all that a driver lacks may be one) tells nothing and is left alone.
Replacements guarded_functions(const ctxb_gate& gate) {
  struct Known {
    const ctxb_gate_entry* entry;
    std::uintptr_t by;
    bool ambiguous;
  };
  std::map<std::uintptr_t, Known> known;
  for (std::uint32_t index = 0; index < gate.count; ++index) {
    const ctxb_gate_entry& entry = gate.entries[index];
    const std::uintptr_t of = address_of(gate.driver_function(index));
    if (of == 0) continue;
    const auto [at, fresh] =
        known.try_emplace(of, Known{&entry, address_of(gate.exported_function(index)), false});
    if (fresh) continue;
    at->second.ambiguous |= std::string_view(at->second.entry->base) != entry.base ||
                            at->second.entry->guarded != entry.guarded;
  }
  Replacements all;
  for (const auto& [of, one] : known) {
    if (one.entry->guarded != 0 && !one.ambiguous) all.push_back({of, one.by});
  }
  return all;
}

struct Look {
  std::vector<Extent> code;  // the tenant's
  PatchResult result;
};

int patch_if_of_tenant(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Look& look = *static_cast<Look*>(given);
  if (std::find(look.code.begin(), look.code.end(), extent_of(*object)) == look.code.end()) {
    return 0;
  }
  const PatchResult one = patch_object(*object, late->words, late->imports);
  look.result.words += one.words;
  look.result.imports += one.imports;
  look.result.refused += one.refused;
  return 0;
}

struct Counted {
  Extent object;
  std::size_t words;
};

int count_if_same(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Counted& counted = *static_cast<Counted*>(given);
  if (extent_of(*object) != counted.object) return 0;
  counted.words = count_words(*object, late->guarded);
  return 1;  // the only one
}

// Libraries that the tenant shares and that lead past the gate are left as they are, and named.
void name_shared(GatedTenant& tenant) {
  const std::uintptr_t in_driver = late->guarded.front().of;
  for (const NeededCode& one : needed_by(tenant)) {
    if (one.extent.begin <= in_driver && in_driver < one.extent.end) continue;  // the driver itself
    Counted counted{one.extent, 0};
    dl_iterate_phdr(count_if_same, &counted);
    if (counted.words == 0) continue;
    tenant.note_once(
        one.name,
        "the plug-in's calls through it are not held: it was in the process before, or "
        "others need it too, and the gate came after the driver");
  }
}

void report(const TenantIdentity& tenant, const PatchResult& done) {
  if (done.words + done.imports != 0) {
    tenant.say(Severity::info, "gate",
               "led to the gate, which came after the driver: " + std::to_string(done.words) +
                   " addresses and " + std::to_string(done.imports) +
                   " imports of the tenant's libraries");
  }
  if (done.refused != 0) {
    tenant.say(Severity::warning, "gate",
               std::to_string(done.refused) +
                   " addresses in the tenant's libraries lead past the gate and cannot be changed: "
                   "the system lets nobody write there");
  }
}

void look_at(GatedTenant& tenant) noexcept {
  try {
    // One at a time: what the loader has made read-only is open for as long as that takes.
    static std::mutex looking;
    const std::lock_guard lock(looking);
    Look look{code_of(tenant), {}};
    dl_iterate_phdr(patch_if_of_tenant, &look);
    report(tenant.identity(), look.result);
    name_shared(tenant);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: looked at again after a guard
  }
}

void look_after_guard(GatedTenant* tenant) noexcept {
  if (tenant->take_look()) look_at(*tenant);
  if (!tenant->has_looks()) tenant->identity().guard_ended.store(nullptr);
}

void look_after_next_guards(GatedTenant& tenant) noexcept {
  tenant.give_looks(most_looks);
  tenant.identity().guard_ended.store(look_after_guard);
}

}  // namespace

std::string late_gate_reason(const std::string& driver, const std::string& brought_by) {
  return "the driver, " + driver + ", was loaded before the broker was opened: " + brought_by +
         ". Held are the calls that plug-ins make from their own libraries, once these are loaded. "
         "Not held are calls of their constructors, calls through libraries that the host uses too "
         "or had before, and addresses of the driver that stand elsewhere than in a library's own "
         "data. Link the program with ctxbroker::broker, or open the broker first";
}

void start_late_gate(const ctxb_gate& gate) {
  auto made = std::make_unique<Late>();
  made->guarded = guarded_functions(gate);
  if (made->guarded.empty()) return;  // no driver at all
  const ImportReplacement by_name{"dlsym", address_of(gate.late_dlsym)};
  const ImportReplacement by_version{"dlvsym", address_of(gate.late_dlvsym)};
  made->imports = {by_name, by_version};
  made->words = made->guarded;
  made->words.push_back({reinterpret_cast<std::uintptr_t>(&dlsym), by_name.by});
  made->words.push_back({reinterpret_cast<std::uintptr_t>(&dlvsym), by_version.by});
  std::sort(made->words.begin(), made->words.end(),
            [](const Replacement& a, const Replacement& b) { return a.of < b.of; });
  late = made.release();
}

void lead_to_gate(GatedTenant& tenant, void* library) noexcept {
  if (late == nullptr) return;
  if (owner_of_code(address_in(library)).tenant == nullptr) {
    tenant.identity().say(Severity::warning, "gate",
                          "the library was in the process before it was loaded for the tenant: the "
                          "gate, which came after the driver, does not hold its calls");
  }
  look_at(tenant);
  look_after_next_guards(tenant);
}

void lead_opened_to_gate(GatedTenant& tenant) noexcept {
  if (late == nullptr) return;
  look_at(tenant);
  look_after_next_guards(tenant);
}

void look_after_next_guard(const TenantIdentity& tenant) noexcept {
  GatedTenant* const gated = tenant.gated.load(std::memory_order_acquire);
  if (late != nullptr && gated != nullptr) look_after_next_guards(*gated);
}

}  // namespace ctxbroker::detail
