#include "gate/physical_memory.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ctxbroker::detail {
namespace {

// Of the process, as handles and addresses are.
struct Charges {
  std::mutex mutex;
  std::map<std::pair<Kind, std::uint64_t>, Charge> all;

  static Charges& one() {
    static auto* const charges = new Charges;  // plug-ins' threads may unmap until the process ends
    return *charges;
  }
};

}  // namespace

Charge take_charge(GatedTenant& tenant, std::uint64_t bytes) {
  if (!tenant.take_bytes(bytes)) return nullptr;
  return {static_cast<const void*>(&tenant),
          [&tenant, bytes](const void*) { tenant.give_bytes(bytes); }};
}

void put_charge(Kind kind, std::uint64_t handle, Charge charge) {
  Charges& charges = Charges::one();
  const std::lock_guard lock(charges.mutex);
  charges.all.insert_or_assign({kind, handle}, std::move(charge));
}

Charge charge_of(Kind kind, std::uint64_t handle) noexcept {
  Charges& charges = Charges::one();
  const std::lock_guard lock(charges.mutex);
  const auto found = charges.all.find({kind, handle});
  return found != charges.all.end() ? found->second : nullptr;
}

Charge take_out_charge(Kind kind, std::uint64_t handle) noexcept {
  Charges& charges = Charges::one();
  const std::lock_guard lock(charges.mutex);
  const auto taken = charges.all.extract({kind, handle});
  return taken ? taken.mapped() : nullptr;
}

}  // namespace ctxbroker::detail
