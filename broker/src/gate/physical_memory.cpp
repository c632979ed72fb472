#include "gate/physical_memory.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ctxbroker::detail {
namespace {

struct Use {
  std::vector<std::uint64_t> mappings;  // addresses
  int other_holds = 0;                  // of the handle
};

// Of the process, as addresses are.
struct Uses {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, std::shared_ptr<Use>> by_handle, by_address;

  static Uses& one() {
    static auto* const uses = new Uses;  // threads of plug-ins may unmap until the process ends
    return *uses;
  }
  Use& of(std::uint64_t physical) {
    std::shared_ptr<Use>& use = by_handle[physical];
    if (use == nullptr) use = std::make_shared<Use>();
    return *use;
  }
};

bool pass_on(const Use& use, const Holding& ended) noexcept {
  return std::any_of(use.mappings.begin(), use.mappings.end(), [&](std::uint64_t address) {
    return owners().add_bytes(Kind::mapping, address, ended.tenant, ended.bytes);
  });
}

}  // namespace

void note_mapping(std::uint64_t physical, std::uint64_t address) {
  Uses& uses = Uses::one();
  const std::lock_guard lock(uses.mutex);
  uses.of(physical).mappings.push_back(address);
  uses.by_address[address] = uses.by_handle[physical];
}

void note_another_hold(std::uint64_t physical) {
  Uses& uses = Uses::one();
  const std::lock_guard lock(uses.mutex);
  ++uses.of(physical).other_holds;
}

bool take_another_hold(std::uint64_t physical) noexcept {
  Uses& uses = Uses::one();
  const std::lock_guard lock(uses.mutex);
  const auto found = uses.by_handle.find(physical);
  if (found == uses.by_handle.end() || found->second->other_holds == 0) return false;
  --found->second->other_holds;
  return true;
}

bool pass_on_physical(const Holding& ended) noexcept {
  Uses& uses = Uses::one();
  const std::lock_guard lock(uses.mutex);
  const auto found = uses.by_handle.find(ended.handle);
  if (found == uses.by_handle.end()) return false;
  const std::shared_ptr<Use> use = found->second;
  uses.by_handle.erase(found);
  return ended.bytes != 0 && pass_on(*use, ended);
}

bool pass_on_mapping(const Holding& ended) noexcept {
  Uses& uses = Uses::one();
  const std::lock_guard lock(uses.mutex);
  const auto found = uses.by_address.find(ended.handle);
  if (found == uses.by_address.end()) return false;
  const std::shared_ptr<Use> use = found->second;
  uses.by_address.erase(found);
  const auto here = std::find(use->mappings.begin(), use->mappings.end(), ended.handle);
  if (here != use->mappings.end()) use->mappings.erase(here);
  return ended.bytes != 0 && pass_on(*use, ended);
}

}  // namespace ctxbroker::detail
