// Holdings by kind and handle, side by side in one block: nothing is allocated but for growth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gate/holding.hpp"

namespace ctxbroker::detail {

// Open addressing: an entry lies at the place that its key gives, or at the next free one behind.
// What is taken out leaves no mark, because those behind it move up. One thread at a time.
class HoldingTable {
 public:
  // Null: there is none. Good until the next put or take.
  Holding* find(Kind kind, std::uint64_t handle) noexcept {
    if (places_ == nullptr) return nullptr;
    for (std::size_t place = home(kind, handle); is_used(place); place = next(place)) {
      if (is(places_[place], kind, handle)) return &places_[place];
    }
    return nullptr;
  }
  // In place of an older one. Throws std::bad_alloc, and nothing has changed then.
  void put(const Holding& holding) {
    if (count_ >= most()) grow();
    std::size_t place = home(holding.kind, holding.handle);
    while (is_used(place) && !is(places_[place], holding.kind, holding.handle)) place = next(place);
    if (!is_used(place)) ++count_;
    places_[place] = holding;
  }
  // What find has found.
  Holding take(const Holding* found) noexcept;

  template <typename Use>
  void each(Use&& use) const {
    for (std::size_t place = 0; place < capacity(); ++place) {
      if (is_used(place)) use(static_cast<const Holding&>(places_[place]));
    }
  }
  std::size_t size() const noexcept { return count_; }
  std::size_t capacity() const noexcept { return places_ == nullptr ? 0 : last_ + 1; }

  // Spread over all 64 bits, the highest best: handles are addresses that end with zeros.
  static std::uint64_t hash(Kind kind, std::uint64_t handle) noexcept {
    return ((handle >> 4) + static_cast<std::uint64_t>(kind)) * 0x9E3779B97F4A7C15U;
  }

 private:
  static bool is(const Holding& one, Kind kind, std::uint64_t handle) noexcept {
    return one.handle == handle && one.kind == kind;
  }
  bool is_used(std::size_t place) const noexcept { return places_[place].kind != Kind::nothing; }
  std::size_t home(Kind kind, std::uint64_t handle) const noexcept {
    return static_cast<std::size_t>(hash(kind, handle) >> shift_);
  }
  std::size_t next(std::size_t place) const noexcept { return (place + 1) & last_; }
  // Three quarters: a search looks at few places, and ends at a free one.
  std::size_t most() const noexcept { return capacity() - capacity() / 4; }
  void grow();

  std::unique_ptr<Holding[]> places_;
  std::size_t count_ = 0;
  std::size_t last_ = 0;    // the last place; with capacity a power of two, its mask too
  unsigned int shift_ = 0;  // from a hash to a place
};

}  // namespace ctxbroker::detail
