// SPDX-License-Identifier: Apache-2.0
#include "context/segments.hpp"

#include <algorithm>
#include <boost/icl/interval_set.hpp>
#include <iterator>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t block_unit = 512;  // bytes, as the driver's pinned blocks have it

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

// A block gets a free segment of its own that is larger by at most a quarter.
bool is_about(std::uint64_t segment, std::uint64_t block) noexcept {
  return segment >= block && segment - block <= std::max(block / 4, Segments::shared_bytes);
}

// Neighbouring ranges are merged when one is added.
using RangeSet = boost::icl::interval_set<std::uint64_t, std::less,
                                          boost::icl::right_open_interval<std::uint64_t>>;
using Interval = RangeSet::interval_type;

}  // namespace

struct Segments::Segment {
  Segment(Range range, bool is_for_many)
      : bytes(range.bytes), is_shared(is_for_many), free_bytes(range.bytes) {
    free += Interval(range.begin, range.begin + range.bytes);
  }
  void cut(std::uint64_t begin, std::uint64_t block) {
    const auto [entry, is_new] = blocks.emplace(begin, block);
    try {
      free -= Interval(begin, begin + block);
    } catch (...) {
      blocks.erase(entry);
      throw;
    }
    free_bytes -= block;
  }
  // Takes the first range that is large enough.
  std::optional<std::uint64_t> take(std::uint64_t block) {
    if (free_bytes < block) return std::nullopt;
    const auto found = std::find_if(free.begin(), free.end(), [&](const Interval& one) {
      return one.upper() - one.lower() >= block;
    });
    if (found == free.end()) return std::nullopt;
    const std::uint64_t begin = found->lower();
    cut(begin, block);
    return begin;
  }

  // Returns whether nothing is taken and the segment need not last.
  bool is_unused() const noexcept { return blocks.empty() && !is_lasting; }

  std::uint64_t bytes;
  bool is_shared;
  bool is_lasting = false;
  std::uint64_t free_bytes;
  RangeSet free;
  std::map<std::uint64_t, std::uint64_t> blocks;  // their sizes, by address
};

Segments::Segments() = default;
Segments::~Segments() = default;

std::uint64_t Segments::bytes_for(std::uint64_t block, std::uint64_t unit) noexcept {
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  if (block > most || unit == 0 || unit > most) return 0;
  return round_up(block <= largest_small ? shared_bytes : block, unit);
}

std::optional<std::uint64_t> Segments::take(std::uint64_t bytes) {
  const std::uint64_t block = round_up(bytes, block_unit);
  if (block < bytes) return std::nullopt;
  if (block > largest_small) {
    Segment* best = nullptr;
    for (const auto& [begin, one] : all_) {
      const bool fits = !one->is_shared && one->blocks.empty() && is_about(one->bytes, block);
      if (fits && (best == nullptr || one->bytes < best->bytes)) best = one.get();
    }
    if (best != nullptr) return best->take(block);
  }
  for (const auto& [begin, one] : all_) {
    if (!one->is_shared) continue;
    if (const auto taken = one->take(block)) return taken;
  }
  return std::nullopt;
}

std::uint64_t Segments::add(Range segment, std::uint64_t bytes) {
  const std::uint64_t block = round_up(bytes, block_unit);
  auto made = std::make_unique<Segment>(segment, block <= largest_small);
  made->cut(segment.begin, block);
  all_.emplace(segment.begin, std::move(made));
  return segment.begin;
}

void Segments::add_lasting(Range segment) {
  auto made = std::make_unique<Segment>(segment, true);
  made->is_lasting = true;
  all_.emplace(segment.begin, std::move(made));
}

bool Segments::give(std::uint64_t address) {
  auto found = all_.upper_bound(address);
  if (found == all_.begin()) return false;
  Segment& segment = *(--found)->second;
  const auto block = segment.blocks.find(address);
  if (block == segment.blocks.end()) return false;
  segment.free += Interval(address, address + block->second);
  segment.free_bytes += block->second;
  segment.blocks.erase(block);
  return true;
}

template <typename Chosen>
std::vector<Segments::Range> Segments::take_out(Chosen&& is_chosen) {
  std::vector<Range> taken;
  taken.reserve(all_.size());
  std::erase_if(all_, [&](const auto& entry) {
    if (!is_chosen(*entry.second)) return false;
    taken.push_back({entry.first, entry.second->bytes});
    return true;
  });
  return taken;
}

std::vector<Segments::Range> Segments::take_unused() {
  return take_out([](const Segment& one) { return one.is_unused(); });
}

std::vector<Segments::Range> Segments::take_all() {
  return take_out([](const Segment&) { return true; });
}

bool Segments::has_unused() const noexcept {
  return std::any_of(all_.begin(), all_.end(),
                     [](const auto& entry) { return entry.second->is_unused(); });
}

std::uint64_t Segments::free_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& [begin, one] : all_) bytes += one->free_bytes;
  return bytes;
}

}  // namespace ctxbroker::detail
