// SPDX-License-Identifier: Apache-2.0
#include "gate/code_map.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "gate/brought_objects.hpp"
#include "gate/code_claims.hpp"
#include "gate/common_libraries.hpp"
#include "gate/loaded_objects.hpp"
#include "gate/tenant_code.hpp"
#include "observe/lasting.hpp"

namespace ctxbroker::detail {
namespace {

struct Object {
  std::uintptr_t begin = 0, end = 0;
  GatedTenant* tenant = nullptr;  // null: the host's, or several tenants'
  bool starts_threads = false;
  const char* path = "";            // lasting: addresses are reused
  std::vector<GatedTenant*> users;  // several, for which it is without a tenant
  bool was_hosts = false;           // until the tenant adopted it
  bool is_leaving = false;          // it may be gone, and its addresses somebody else's
  bool is_claimed = false;          // it is the tenant's by CodeClaims, whoever uses it too
  bool may_be_adopted = false;      // claimed, until the host adopts it for another tenant
};

// A library that is being loaded for a tenant.
struct Arrival {
  GatedTenant* tenant;
  std::string path;  // empty: it brings nothing with it
};

struct Map {
  // A thread that holds it neither calls the loader nor waits for a tenant's calls: a constructor,
  // which has the loader's lock, may be waiting for it in a guarded call.
  std::shared_mutex lock;
  std::vector<Object> objects;                  // by address
  std::atomic<unsigned long long> changes = 0;  // when they were looked at
  std::vector<Arrival> arrivals;                // the innermost is the last
};
Map& map() {
  static auto* const one = new Map;  // never ended: asked until the process ends
  return *one;
}

// Says to readers without a lock which code is the tenants'.
void publish(const Map& map) {
  std::vector<TenantCode> libraries;
  for (const Object& one : map.objects) {
    if (one.tenant == nullptr) continue;
    libraries.push_back({{one.begin, one.end}, one.is_leaving ? nullptr : one.tenant, one.path});
  }
  publish_tenant_code(libraries, !map.arrivals.empty());
}

const Object* find(const std::vector<Object>& objects, std::uintptr_t address) noexcept {
  const auto after = std::upper_bound(
      objects.begin(), objects.end(), address,
      [](std::uintptr_t wanted, const Object& object) { return wanted < object.begin; });
  if (after == objects.begin()) return nullptr;
  const Object& object = *std::prev(after);
  return address < object.end ? &object : nullptr;
}
Object* find(std::vector<Object>& objects, std::uintptr_t address) noexcept {
  return const_cast<Object*>(find(std::as_const(objects), address));
}

bool is_known(const std::vector<Object>& known, const LoadedObject& one) noexcept {
  const Object* object = find(known, one.begin);
  return object != nullptr && object->begin == one.begin && object->end == one.end &&
         object->path == one.path;
}

// The object becomes nobody's, because this tenant uses it too.
void share(Object& object, GatedTenant& tenant) {
  if (object.is_claimed) return;
  for (GatedTenant* const user : {object.tenant, &tenant}) {
    const bool is_known =
        std::find(object.users.begin(), object.users.end(), user) != object.users.end();
    if (user != nullptr && !is_known) object.users.push_back(user);
  }
  object.tenant = nullptr;
}

// A tenant uses what its objects need. An object of another tenant's becomes nobody's by that, and
// so does what that one needs.
void share_needed(std::vector<Object>& known, const std::vector<LoadedObject>& present,
                  const LoadedObject& user, GatedTenant& tenant) {
  for (const std::string& name : user.needed) {
    for (const LoadedObject& one : present) {
      if (one.name != name) continue;
      Object* object = find(known, one.begin);
      if (object == nullptr || object->tenant == nullptr || object->is_claimed ||
          object->tenant->stands_with(tenant)) {
        continue;
      }
      share(*object, tenant);
      share_needed(known, present, one, tenant);
    }
  }
}

// The tenant for which that object came, or null: the host opened it. The loader lists objects in
// the order in which they come, and lets no other thread load one until the constructors of an
// arriving library have run: so the library itself and what is listed behind it came with it.
GatedTenant* came_for(const Map& map, const std::vector<LoadedObject>& present,
                      const LoadedObject& one) {
  for (auto arrival = map.arrivals.rbegin(); arrival != map.arrivals.rend(); ++arrival) {
    if (arrival->path.empty()) continue;
    for (const LoadedObject& arrived : present) {
      if (arrived.path == arrival->path && &arrived <= &one) return arrival->tenant;
    }
  }
  return nullptr;
}

// The answers of the claims about libraries.
class Claimants {
 public:
  void add(const LoadedObject& library, const CodeClaims::Claim& claim) {
    all_.emplace_back(&library, claim);
  }
  CodeClaims::Claim of(const LoadedObject& library) const noexcept {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const auto& one) { return one.first == &library; });
    return found != all_.end() ? found->second : CodeClaims::Claim{};
  }
  const auto& all() const noexcept { return all_; }

 private:
  std::vector<std::pair<const LoadedObject*, CodeClaims::Claim>> all_;
};

// The libraries that are loaded.
struct Present {
  std::vector<LoadedObject> objects;
  unsigned long long changes = 0;  // so far, when they were listed
  Claimants claimants;             // of those that the map does not know yet
};

// Asks the claims about libraries that the map does not know. Asks new claims alone about all
// libraries, but for those that an open tenant has. The claims may open a tenant for the answer, so
// no lock is held.
Claimants ask_claims(Map& map, std::vector<LoadedObject>& present, CodeClaims* fresh) {
  Claimants claimants;
  const auto claims = open_claims();
  if (claims->empty()) return claimants;
  std::vector<std::pair<const LoadedObject*, CodeClaims::Meeting>> asked;
  {
    const std::shared_lock lock(map.lock);
    for (const LoadedObject& one : present) {
      const bool known = is_known(map.objects, one);
      if (is_starter(one) || (known && fresh == nullptr)) continue;
      const Object* const object = known ? find(std::as_const(map.objects), one.begin) : nullptr;
      if (object != nullptr && object->tenant != nullptr && object->tenant->is_open()) continue;
      asked.push_back({&one, {fresh != nullptr, came_for(map, present, one) != nullptr}});
    }
  }
  if (!asked.empty()) name_files(present);
  for (const auto& [one, meeting] : asked) {
    for (const auto& all : *claims) {
      if (fresh != nullptr && all.get() != fresh) continue;
      const CodeClaims::Claim claim = all->claimant(*one, present, meeting);
      if (!claim) continue;
      claimants.add(*one, claim);
      break;
    }
  }
  return claimants;
}

// Calls `use` under the lock, with what is loaded. That is listed before, and anew if another
// thread has seen a later list.
template <typename Use>
void with_present(Map& map, Use&& use, CodeClaims* fresh = nullptr) {
  for (;;) {
    Present present;
    present.objects = loaded_objects(&present.changes);
    present.claimants = ask_claims(map, present.objects, fresh);
    const std::unique_lock lock(map.lock);
    if (present.changes < map.changes) continue;
    use(std::as_const(present));
    return;
  }
}

// The object is the tenant's by the claims.
Object claimed_object(const LoadedObject& library, const CodeClaims::Claim& claim) {
  claim.tenant->mark_code();
  Object object{library.begin, library.end, claim.tenant, false, lasting(library.path), {}};
  object.is_claimed = true;
  object.may_be_adopted = claim.yields;
  return object;
}

// Objects that are gone are forgotten, and new ones get their owners. A claim counts before
// whatever loaded the object.
void update(Map& map, const Present& present) {
  if (present.changes == map.changes) return;
  std::vector<Object> objects;
  std::vector<std::pair<const LoadedObject*, GatedTenant*>> arrived;
  for (const LoadedObject& one : present.objects) {
    if (is_known(map.objects, one)) {
      objects.push_back(*find(map.objects, one.begin));
      continue;
    }
    if (const auto claim = present.claimants.of(one)) {
      arrived.emplace_back(&one, claim.tenant);
      objects.push_back(claimed_object(one, claim));
      continue;
    }
    const bool starter = is_starter(one);
    GatedTenant* const owner = came_for(map, present.objects, one);
    if (owner != nullptr) arrived.emplace_back(&one, owner);
    objects.push_back(
        {one.begin, one.end, starter ? nullptr : owner, starter, lasting(one.path), {}});
  }
  std::sort(objects.begin(), objects.end(),
            [](const Object& a, const Object& b) { return a.begin < b.begin; });
  for (const auto& [one, owner] : arrived) share_needed(objects, present.objects, *one, *owner);
  map.objects = std::move(objects);
  map.changes = present.changes;
  publish(map);
}

// Gives what is known already and has no owner to its claimants.
void give_to_claimants(Map& map, const Present& present) {
  for (const auto& [library, claim] : present.claimants.all()) {
    Object* const object = find(map.objects, library->begin);
    if (object == nullptr || object->tenant != nullptr) continue;
    *object = claimed_object(*library, claim);
    share_needed(map.objects, present.objects, *library, *claim.tenant);
  }
  publish(map);
}

// The object that holds that address was opened by the tenant's code.
void record_opened(Map& process, GatedTenant& tenant, const Present& all, std::uintptr_t inside) {
  const std::vector<LoadedObject>& present = all.objects;
  const auto opened = std::find_if(present.begin(), present.end(),
                                   [&](const LoadedObject& one) { return holds(one, inside); });
  if (opened == present.end() || is_starter(*opened)) return;
  tenant.mark_code();
  std::vector<const LoadedObject*> mine{&*opened};
  std::vector<Object> objects = process.objects;
  if (is_known(objects, *opened)) {
    Object& object = *find(objects, inside);
    if (object.tenant == nullptr || object.tenant->stands_with(tenant)) return;
    share(object, tenant);
  } else {
    mine =
        brought(present, *opened, [&](const LoadedObject& one) { return !is_known(objects, one); });
    for (const LoadedObject* one : mine) {
      const auto claim = all.claimants.of(*one);
      objects.push_back(claim
                            ? claimed_object(*one, claim)
                            : Object{one->begin, one->end, &tenant, false, lasting(one->path), {}});
    }
    std::sort(objects.begin(), objects.end(),
              [](const Object& a, const Object& b) { return a.begin < b.begin; });
  }
  for (const LoadedObject* one : mine) {
    const auto claim = all.claimants.of(*one);
    share_needed(objects, present, *one, claim ? *claim.tenant : tenant);
  }
  process.objects = std::move(objects);
  publish(process);
}

// Another open tenant that uses the object, or null.
GatedTenant* other_user(const std::vector<Object>& known, const std::vector<LoadedObject>& present,
                        const LoadedObject& wanted, const GatedTenant& tenant) {
  for (GatedTenant* const user : find(known, wanted.begin)->users) {
    if (user->is_open() && !user->stands_with(tenant)) return user;
  }
  for (const LoadedObject& one : present) {
    const Object* const object = find(known, one.begin);
    if (object == nullptr || object->tenant == nullptr || !object->tenant->is_open()) continue;
    if (!object->tenant->stands_with(tenant) && needs(one, wanted)) return object->tenant;
  }
  return nullptr;
}

CodeClaim claim(Map& process, GatedTenant& tenant, const std::vector<LoadedObject>& present,
                std::uintptr_t inside) {
  const auto wanted = std::find_if(present.begin(), present.end(),
                                   [&](const LoadedObject& one) { return holds(one, inside); });
  const Object* const now = find(process.objects, inside);
  if (wanted == present.end() || now == nullptr) return {};
  if (now->tenant != nullptr && now->tenant->stands_with(tenant)) return {};
  if (is_starter(*wanted) || calls_for_others(*wanted)) return {ClaimResult::common, {}, nullptr};
  if (now->is_claimed && !now->may_be_adopted && now->tenant->is_open()) {
    return {ClaimResult::claimed, {}, now->tenant};
  }
  GatedTenant* other = nullptr;
  if (!now->may_be_adopted) {
    other = now->tenant != nullptr ? now->tenant
                                   : other_user(process.objects, present, *wanted, tenant);
  }
  std::vector<Object> objects = process.objects;
  Object& object = *find(objects, inside);
  CodeClaim made{ClaimResult::taken, {}, nullptr};
  if (other != nullptr) {
    share(object, tenant);
    share_needed(objects, present, *wanted, tenant);
    made = {ClaimResult::shared, {}, other};
  } else {
    const auto is_free = [&](const LoadedObject& one) {
      const Object* const known = find(objects, one.begin);
      return known != nullptr && known->tenant == nullptr && !calls_for_others(one) &&
             other_user(objects, present, one, tenant) == nullptr;
    };
    for (const LoadedObject* one : brought(present, *wanted, is_free)) {
      Object& its = *find(objects, one->begin);
      its.tenant = &tenant;
      its.is_claimed = its.may_be_adopted = false;
      its.was_hosts = its.was_hosts || its.users.empty();
      its.users.clear();
      made.code.push_back({one->begin, one->end});
    }
    share_needed(objects, present, *wanted, tenant);
    tenant.mark_code();
  }
  process.objects = std::move(objects);
  publish(process);
  return made;
}

}  // namespace

CodeClaim claim_code(GatedTenant& tenant, const void* address) {
  CodeClaim made;
  with_present(map(), [&](const Present& present) {
    made = claim(map(), tenant, present.objects, reinterpret_cast<std::uintptr_t>(address));
  });
  return made;
}

void record_code_before_open() {
  Map& process = map();
  if (process.changes == changes_so_far()) return;
  with_present(process, [&](const Present& present) { update(process, present); });
}

void record_opened_code(GatedTenant& tenant, void* library) {
  const auto inside = reinterpret_cast<std::uintptr_t>(address_in(library));
  // An ended tenant may have left it.
  GatedTenant* const left = owner_of_code(address_in(library)).tenant;
  if (left != nullptr) tenant.main().open_beside(*left);
  with_present(map(),
               [&](const Present& present) { record_opened(map(), tenant, present, inside); });
}

bool has_run_path(const GatedTenant& tenant) {
  const std::vector<Extent> own = code_of(tenant);
  for (const LoadedObject& one : loaded_objects()) {
    if (!one.has_run_path) continue;
    if (std::find(own.begin(), own.end(), Extent{one.begin, one.end}) != own.end()) return true;
  }
  return false;
}

CodeChange::CodeChange(GatedTenant& tenant, Way way, const std::string& path)
    : tenant_(tenant), way_(way) {
  Map& process = map();
  with_present(process, [&](const Present& present) {
    update(process, present);
    tenant.mark_code();
    if (way == Way::arrives) {
      // One that is in the process already brings nothing with it.
      const bool is_new = std::none_of(present.objects.begin(), present.objects.end(),
                                       [&](const auto& one) { return one.path == path; });
      process.arrivals.push_back({&tenant, is_new ? path : std::string()});
    }
    std::vector<Object> before;
    if (way == Way::leaves) before = process.objects;
    for (Object& one : process.objects) {
      if (way != Way::leaves || one.tenant != &tenant) continue;
      one.is_leaving = !one.was_hosts;
      // The host goes on using the libraries that it had before.
      if (one.was_hosts) one.tenant = nullptr;
    }
    try {
      publish(process);
    } catch (...) {
      if (way == Way::arrives) process.arrivals.pop_back();
      if (way == Way::leaves) process.objects = std::move(before);
      throw;
    }
  });
}

void CodeChange::end() noexcept {
  if (has_ended_) return;
  has_ended_ = true;
  Map& process = map();
  const auto forget = [&] {
    if (way_ == Way::arrives) process.arrivals.pop_back();
    for (Object& one : process.objects) {
      if (way_ == Way::leaves && one.tenant == &tenant_) one.is_leaving = false;
    }
  };
  try {
    with_present(process, [&](const Present& present) {
      update(process, present);
      forget();
      publish(process);
    });
  } catch (...) {  // out of memory: code is still looked for everywhere, which is slow but right
    const std::unique_lock lock(process.lock);
    forget();
  }
}

std::vector<Extent> code_of(const GatedTenant& tenant) {
  Map& process = map();
  const std::shared_lock lock(process.lock);
  std::vector<Extent> all;
  for (const Object& one : process.objects) {
    if (one.tenant == &tenant) all.push_back({one.begin, one.end});
  }
  return all;
}

bool has_code(const GatedTenant& tenant) noexcept {
  Map& process = map();
  const std::shared_lock lock(process.lock);
  return std::any_of(process.objects.begin(), process.objects.end(),
                     [&](const Object& one) { return one.tenant == &tenant; });
}

namespace {

// Looks at what is loaded, if that has changed since the map was made.
void refresh() noexcept {
  Map& process = map();
  try {
    if (changes_so_far() == process.changes) return;
    with_present(process, [&](const Present& present) { update(process, present); });
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: new code is nobody's
  }
}

// False: the map may be older than what is loaded, while a library arrives or leaves.
bool find_owner(std::uintptr_t address, CodeOwner& owner) noexcept {
  const Map& process = map();
  const std::shared_lock lock(map().lock);
  const Object* const object = find(process.objects, address);
  owner = object != nullptr ? CodeOwner{object->tenant, object->starts_threads} : CodeOwner{};
  return object != nullptr ? !object->is_leaving : process.arrivals.empty();
}

}  // namespace

CodeOwner owner_of_code(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  CodeOwner owner;
  if (find_owner(at, owner)) return owner;
  refresh();
  find_owner(at, owner);
  return owner;
}

namespace {

// The program itself may have closed a library, and opened another one in its place. Code that runs
// stays, so its name can be read. Takes no lock.
bool is_still(const char* path, const void* address) noexcept {
  dl_find_object found{};
  return _dl_find_object(const_cast<void*>(address), &found) == 0 &&
         std::strcmp(found.dlfo_link_map->l_name, path) == 0;
}

}  // namespace

RunningCode running_code(const void* address) noexcept {
  const TenantCode published = tenant_code_at(address);
  CodeOwner owner{published.tenant, false};
  const char* path = published.path;
  if (published.tenant == nullptr) {
    const std::shared_lock lock(map().lock);
    const Object* const object =
        find(std::as_const(map().objects), reinterpret_cast<std::uintptr_t>(address));
    if (object == nullptr || object->is_leaving) return {};
    owner = {object->tenant, object->starts_threads};
    path = object->path;
  }
  if (had_claims() && !is_still(path, address)) return {};
  return {owner, true};
}

void give_loaded_code_to(CodeClaims& claims) {
  Map& process = map();
  gated_tenants.store(true, std::memory_order_release);
  // Code that an ended tenant has left stays with its GatedTenant.
  std::vector<std::pair<GatedTenant*, GatedTenant*>> left;
  with_present(
      process,
      [&](const Present& present) {
        update(process, present);
        give_to_claimants(process, present);
        for (const auto& [library, claim] : present.claimants.all()) {
          const Object* const object = find(std::as_const(process.objects), library->begin);
          if (object != nullptr && !object->tenant->is_open()) {
            left.emplace_back(claim.tenant, object->tenant);
          }
        }
      },
      &claims);
  for (const auto& [tenant, one] : left) tenant->main().open_beside(*one);
}

void look_for_claimed_code() noexcept {
  if (had_claims()) refresh();
}

}  // namespace ctxbroker::detail
