#include "gate/holding_table.hpp"

#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr std::size_t first_capacity = 32;
constexpr unsigned int first_shift = 64 - 5;
// What a tenant with many things leaves behind, and what is looked through for every tenant's end.
constexpr std::size_t most_kept_empty = 1024;

}  // namespace

void HoldingTable::grow() {
  HoldingTable larger;
  const std::size_t capacity = places_ == nullptr ? first_capacity : 2 * (last_ + 1);
  larger.places_ = std::make_unique<Holding[]>(capacity);
  larger.last_ = capacity - 1;
  larger.shift_ = places_ == nullptr ? first_shift : shift_ - 1;
  each([&](const Holding& holding) { larger.put(holding); });
  *this = std::move(larger);
}

Holding HoldingTable::take(const Holding* found) noexcept {
  const Holding holding = *found;
  auto hole = static_cast<std::size_t>(found - places_.get());
  for (std::size_t place = next(hole); is_used(place); place = next(place)) {
    // What does not belong behind the hole may not stay behind it.
    const std::size_t from_home =
        (place - home(places_[place].kind, places_[place].handle)) & last_;
    if (from_home < ((place - hole) & last_)) continue;
    places_[hole] = places_[place];
    hole = place;
  }
  places_[hole].kind = Kind::nothing;
  if (--count_ == 0 && capacity() > most_kept_empty) *this = HoldingTable();
  return holding;
}

}  // namespace ctxbroker::detail
