// SPDX-License-Identifier: Apache-2.0
#include "gate/use.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "context/ownership.hpp"

namespace ctxbroker::detail {
namespace {

// ---- members
// --------------------------------------------------------------------------------------

struct Whole {
  Kind kind = Kind::nothing;
  std::uint64_t handle = 0;
  bool operator==(const Whole& other) const = default;
  std::pair<Kind, std::uint64_t> key() const noexcept { return {kind, handle}; }
};

struct Members {
  using Of = std::map<std::pair<Kind, std::uint64_t>, std::vector<std::uint64_t>>;
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Whole> whole_of;
  Of of;

  static Members& all() {
    static auto* const one = new Members;  // threads of plug-ins may ask until the process ends
    return *one;
  }
  void forget_all_of(const Whole& whole) noexcept {
    Of taken;
    take_all_of(whole, taken);
  }
  // Adds them to `taken`, without an allocation.
  void take_all_of(const Whole& whole, Of& taken) noexcept {
    auto members = of.extract(whole.key());
    if (members.empty()) return;
    // A later member of another whole may have its value.
    std::erase_if(members.mapped(), [&](std::uint64_t member) {
      const auto found = whole_of.find(member);
      if (found == whole_of.end() || found->second != whole) return true;
      whole_of.erase(found);
      return false;
    });
    const auto added = taken.insert(std::move(members));
    for (const std::uint64_t member : added.position->second) {
      take_all_of({Kind::graph, member}, taken);
    }
  }
};

// The outermost whole, which may be in the ledger.
Whole outermost(Whole thing) noexcept {
  if (thing.kind != Kind::graph && thing.kind != Kind::context) return thing;
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  for (auto found = members.whole_of.find(thing.handle); found != members.whole_of.end();
       found = members.whole_of.find(thing.handle)) {
    thing = found->second;
  }
  return thing;
}

// ---- whose it is --------------------------------------------------------------------------------

enum class Whose { callers, nobodys, anothers, gone };

// The GatedTenant among those of the tenant that holds it; null: none does.
GatedTenant* holder_among(GatedTenant& tenant, const Holder& holder) noexcept {
  if (holder.tenant == tenant.id()) return &tenant;
  GatedTenant* const other = gated_tenant_of(holder.tenant);
  return other != nullptr && other->stands_with(tenant) ? other : nullptr;
}

Whose whose(GatedTenant& tenant, const Holding& held) noexcept {
  if (held.holder.origin != Origin::code) {
    return held.holder.tenant == tenant.identity().id ? Whose::callers : Whose::anothers;
  }
  GatedTenant* const holder = holder_among(tenant, held.holder);
  if (holder == nullptr) return Whose::anothers;
  return ended_with_context(*holder, held) ? Whose::gone : Whose::callers;
}

Whose whose(GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept {
  std::optional<Holding> held;
  if (kind == Kind::memory) {
    held = ledger().find_memory_at(handle);
  } else {
    held = ledger().find(kind, handle, tenant.holder());
    if (!held) held = ledger().find(kind, handle);
  }
  if (held) return whose(tenant, *held);
  if (kind == Kind::context) {
    auto* const context = reinterpret_cast<CUcontext>(handle);
    if (tenant.holds(context) || is_of_shared_lease(tenant, context)) return Whose::callers;
    if (holder_of_context(context, &tenant) != nullptr) return Whose::anothers;
  }
  // The green contexts of leases are in no ledger either.
  if (kind == Kind::green_context) {
    auto* const green = reinterpret_cast<CUgreenCtx>(handle);
    if (tenant.lease_with_green(green) != nullptr) return Whose::callers;
    if (holder_of_green(green) != nullptr) return Whose::anothers;
  }
  return Whose::nobodys;
}

// The handles of the legacy stream and the per-thread stream of the current context, which is the
// caller's: nobody makes a neighbour's current.
bool is_standard_stream(Kind kind, std::uint64_t handle) noexcept {
  return kind == Kind::stream && handle <= handle_value(CU_STREAM_PER_THREAD);
}

// ---- what was found out before ------------------------------------------------------------------

// Each place has the mark of one answer "it is the tenant's", which names all that it depends on.
// No mark is ever taken back: when something ends that it may be about, nobody asks for it again.
constexpr std::size_t most_known = 256;
constinit std::array<std::atomic<std::uint64_t>, most_known> known_own{};

std::uint64_t mixed(std::uint64_t mark, std::uint64_t value) noexcept {
  mark = (mark ^ value) * 0x9e3779b97f4a7c15U;
  return mark ^ (mark >> 32);
}

}  // namespace

bool is_of_shared_lease(GatedTenant& tenant, CUcontext context) noexcept {
  const int device = tenant.find_device(context);
  TranslatedLease lease;
  return device >= 0 && tenant.has_lease(device) && tenant.lease(device, &lease) == CUDA_SUCCESS &&
         lease.kind == LeaseKind::shared;
}

bool is_known_own(GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept {
  if (is_standard_stream(kind, handle) || handle == 0) return true;
  // Read before it is asked.
  const std::uint64_t changes = ownership_changes.load(std::memory_order_acquire);
  const std::uint64_t of_handle = mixed(static_cast<std::uint64_t>(kind), handle);
  const std::uint64_t mark =
      mixed(mixed(mixed(of_handle, tenant.openings()), handle_value(&tenant)), changes);
  std::atomic<std::uint64_t>& known = known_own[of_handle % most_known];
  if (known.load(std::memory_order_relaxed) == mark) return true;
  if (whose(tenant, kind, handle) != Whose::callers) return false;
  known.store(mark, std::memory_order_relaxed);
  return true;
}

CUresult check_use(GatedTenant& tenant, const char* function, Kind kind, std::uint64_t handle,
                   bool may_be_lent) noexcept {
  if (handle == 0) return CUDA_SUCCESS;  // the driver itself answers for that
  if (kind == Kind::graph_exec && is_known_own(tenant, kind, handle)) return CUDA_SUCCESS;
  // A lease's context may have the value of one that came of a green context and has ended.
  if (kind == Kind::context && whose(tenant, kind, handle) == Whose::callers) return CUDA_SUCCESS;
  const Whole whole = outermost({kind, handle});
  if (is_standard_stream(whole.kind, whole.handle)) return CUDA_SUCCESS;
  switch (whose(tenant, whole.kind, whole.handle)) {
    case Whose::callers:
      return CUDA_SUCCESS;
    case Whose::gone:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case Whose::nobodys:
      if (may_be_lent || tenant.main().was_here()) return CUDA_SUCCESS;
      break;
    case Whose::anothers:
      break;
  }
  return refuse_end(tenant, function, whole.kind, whole.handle);
}

CUresult check_use(const Caller& caller, const char* function, Kind kind, std::uint64_t handle,
                   bool may_be_lent) noexcept {
  if (caller.tenant != nullptr) {
    return check_use(*caller.tenant, function, kind, handle, may_be_lent);
  }
  if (may_be_lent || handle == 0 || !any_gated_tenant()) return CUDA_SUCCESS;
  const Whole whole = outermost({kind, handle});
  const auto held = ledger().find(whole.kind, whole.handle);
  // The host may use things that it made for a tenant, and the host's code may be in no library.
  if (!held || held->holder.origin != Origin::code) return CUDA_SUCCESS;
  return refuse_nobody(caller, function, whole.kind, whole.handle).value_or(CUDA_SUCCESS);
}

CUresult check_uses(const Caller& caller, const char* function, std::span<const Word> words,
                    std::span<const Use> uses) noexcept {
  for (const Use& use : uses) {
    const Word word = words[use.position];
    if (use.structure != Structure::none) {
      const CUresult status = check_structure(caller, function, use.structure, word);
      if (status != CUDA_SUCCESS) return status;
      continue;
    }
    if (use.often && (caller.tenant == nullptr || is_known_own(*caller.tenant, use.kind, word))) {
      continue;
    }
    const auto* const array = reinterpret_cast<const std::uint64_t*>(word);
    const bool is_array = use.count_at != is_one;
    if (is_array && array == nullptr) continue;  // the driver itself answers for that
    const std::size_t count =
        is_array ? static_cast<std::uint32_t>(words[use.count_at]) : std::size_t{1};
    for (std::size_t i = 0; i < count; ++i) {
      const CUresult status =
          check_use(caller, function, use.kind, is_array ? array[i] : word, use.may_be_lent);
      if (status != CUDA_SUCCESS) return status;
    }
  }
  return CUDA_SUCCESS;
}

void note_member(Kind kind, std::uint64_t whole, std::uint64_t member) noexcept {
  if (member == 0 || member == whole) return;
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  try {
    const Whole of{kind, whole};
    const auto [entry, is_new] = members.whole_of.try_emplace(member, of);
    if (!is_new && entry->second == of) return;
    entry->second = of;
    members.of[of.key()].push_back(member);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see the header
  }
}

std::uint64_t graph_of(std::uint64_t node_or_graph) noexcept {
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  const auto found = members.whole_of.find(node_or_graph);
  return found != members.whole_of.end() && found->second.kind == Kind::graph ? found->second.handle
                                                                              : node_or_graph;
}

std::uint64_t forget_member(std::uint64_t member) noexcept {
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  const auto found = members.whole_of.extract(member);
  return found.empty() ? 0 : found.mapped().handle;
}

void forget_parts_of(Kind kind, std::uint64_t whole) noexcept {
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  members.forget_all_of({kind, whole});
}

TakenParts::TakenParts(std::uint64_t whole) noexcept {
  Members& members = Members::all();
  const std::lock_guard lock(members.mutex);
  members.take_all_of({Kind::graph, whole}, of_);
}

void TakenParts::put_back() const noexcept {
  for (const auto& [whole, members] : of_) {
    for (const std::uint64_t member : members) note_member(whole.first, whole.second, member);
  }
}

}  // namespace ctxbroker::detail
