// SPDX-License-Identifier: Apache-2.0
// The values of one instance's parameters.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctxbroker/plugin.h"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker::detail {

// Four numbers that any thread sets and gets as a whole, without a lock and without an allocation.
//
// A writer claims a free cell, fills it and makes it the current one. A reader reads the current
// cell, and begins again if it is not current any more when all of it is read. Only if 31 threads
// stand still in the middle of set does another set wait for one of them.
class WholeNumbers {
 public:
  using Numbers = std::array<double, 4>;

  void set(const Numbers& numbers) noexcept;
  Numbers get() const noexcept;

 private:
  static constexpr unsigned int cell_bits = 5;
  static constexpr unsigned int cell_mask = (1U << cell_bits) - 1;
  struct Cell {
    std::array<std::atomic<double>, 4> numbers{};
    std::uint64_t uses = 0;  // belongs to who has claimed the cell
  };

  std::array<Cell, cell_mask + 1> cells_{};
  std::atomic<std::uint32_t> free_{~std::uint32_t{1}};  // one bit for each cell
  std::atomic<std::uint64_t> current_{0};               // its uses and its index
};

class ParameterStore {
 public:
  // Begins with the defaults. The descriptions outlive the store.
  explicit ParameterStore(const std::vector<ParameterDescription>& descriptions);

  // For parameters that are no text. The value has been checked. Any thread.
  void set(std::size_t index, const ParameterValue& value) noexcept;
  ParameterValue get(std::size_t index) const noexcept;

  // For parameters that are text. [main], while nobody uses a snapshot.
  void set_text(std::size_t index, std::string text);
  const std::string& text(std::size_t index) const noexcept { return entries_[index].text; }

  // Takes a snapshot of all values, which stands until the next one is taken. One thread at a time;
  // it neither locks nor allocates.
  const ctxb_value* take_snapshot() noexcept;
  // Sets a parameter of one number in the snapshot too. By the thread that takes snapshots.
  void put(std::size_t index, double value) noexcept;
  const ctxb_value* snapshot() const noexcept { return snapshot_.data(); }
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(snapshot_.size()); }

 private:
  struct Entry {
    std::atomic<double> number{0};        // of types with one number
    std::unique_ptr<WholeNumbers> whole;  // of types with several
    std::string text;
  };

  const std::vector<ParameterDescription>& descriptions_;
  std::vector<Entry> entries_;
  std::vector<ctxb_value> snapshot_;
};

// Returns the value as the plug-in gets it. The text is borrowed.
ctxb_value plugin_value(const ParameterDescription& parameter, const ParameterValue& value,
                        const char* text) noexcept;
// A value with `count` numbers. No parameter allows the value if `count` is not 1, 2 or 4.
ParameterValue value_of(const double* numbers, std::size_t count) noexcept;

}  // namespace ctxbroker::detail
