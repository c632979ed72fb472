// SPDX-License-Identifier: Apache-2.0
#include "plugin/parameter_store.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace ctxbroker::detail {

// Acquire and release on the numbers too: a reader that sees a number of the cell's next use then
// also sees that the cell is not current any more.
void WholeNumbers::set(const Numbers& numbers) noexcept {
  std::uint32_t free = free_.load(std::memory_order_relaxed);
  std::uint32_t bit = 0;
  do {
    while (free == 0) free = free_.load(std::memory_order_relaxed);
    bit = free & (~free + 1);
  } while (!free_.compare_exchange_weak(free, free & ~bit, std::memory_order_acquire,
                                        std::memory_order_relaxed));
  const auto index = static_cast<unsigned int>(std::countr_zero(bit));
  Cell& cell = cells_[index];
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    cell.numbers[i].store(numbers[i], std::memory_order_release);
  }
  const std::uint64_t mine = (++cell.uses << cell_bits) | index;
  const std::uint64_t before = current_.exchange(mine, std::memory_order_acq_rel);
  free_.fetch_or(std::uint32_t{1} << (before & cell_mask), std::memory_order_release);
}

WholeNumbers::Numbers WholeNumbers::get() const noexcept {
  Numbers numbers{};
  std::uint64_t now = current_.load(std::memory_order_acquire);
  for (std::uint64_t before = ~now; before != now;) {
    before = now;
    const Cell& cell = cells_[before & cell_mask];
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = cell.numbers[i].load(std::memory_order_acquire);
    }
    now = current_.load(std::memory_order_acquire);
  }
  return numbers;
}

ParameterValue value_of(const double* numbers, std::size_t count) noexcept {
  switch (count) {
    case 1:
      return numbers[0];
    case 2:
      return {numbers[0], numbers[1]};
    case 4:
      return {numbers[0], numbers[1], numbers[2], numbers[3]};
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

ctxb_value plugin_value(const ParameterDescription& parameter, const ParameterValue& value,
                        const char* text) noexcept {
  return {sizeof(ctxb_value),
          static_cast<std::uint32_t>(parameter.type),
          {value[0], value[1], value[2], value[3]},
          text};
}

ParameterStore::ParameterStore(const std::vector<ParameterDescription>& descriptions)
    : descriptions_(descriptions), entries_(descriptions.size()) {
  for (std::size_t index = 0; index < descriptions.size(); ++index) {
    const ParameterDescription& one = descriptions[index];
    if (number_count(one.type) > 1) entries_[index].whole = std::make_unique<WholeNumbers>();
    entries_[index].text = one.default_text;
    set(index, one.default_value);
    snapshot_.push_back(plugin_value(one, one.default_value, entries_[index].text.c_str()));
  }
}

void ParameterStore::set(std::size_t index, const ParameterValue& value) noexcept {
  Entry& entry = entries_[index];
  if (entry.whole != nullptr) {
    entry.whole->set({value[0], value[1], value[2], value[3]});
  } else {
    entry.number.store(value.number(), std::memory_order_relaxed);
  }
}

ParameterValue ParameterStore::get(std::size_t index) const noexcept {
  const Entry& entry = entries_[index];
  if (entry.whole == nullptr) return entry.number.load(std::memory_order_relaxed);
  return value_of(entry.whole->get().data(), number_count(descriptions_[index].type));
}

void ParameterStore::set_text(std::size_t index, std::string text) {
  entries_[index].text = std::move(text);
  snapshot_[index].text = entries_[index].text.c_str();
}

void ParameterStore::put(std::size_t index, double value) noexcept {
  set(index, value);
  snapshot_[index].numbers[0] = value;
}

const ctxb_value* ParameterStore::take_snapshot() noexcept {
  for (std::size_t index = 0; index < snapshot_.size(); ++index) {
    const Entry& entry = entries_[index];
    ctxb_value& value = snapshot_[index];
    if (entry.whole == nullptr) {
      value.numbers[0] = entry.number.load(std::memory_order_relaxed);
      continue;
    }
    const WholeNumbers::Numbers numbers = entry.whole->get();
    std::copy(numbers.begin(), numbers.end(), value.numbers);
  }
  return snapshot_.data();
}

}  // namespace ctxbroker::detail
