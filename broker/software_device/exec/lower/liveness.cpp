// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "exec/lower/flow.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

// A set of numbers, a bit each.
class Set {
 public:
  explicit Set(std::size_t size) : words_((size + 63) / 64) {}
  void add(std::uint32_t value) { words_[value / 64] |= 1ULL << value % 64; }
  // this |= other; whether that changed it.
  bool merge(const Set& other) {
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint64_t sum = words_[i] | other.words_[i];
      changed |= sum ^ words_[i];
      words_[i] = sum;
    }
    return changed != 0;
  }
  void subtract(const Set& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  template <class F>
  void each(F f) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
        f(static_cast<std::uint32_t>(i * 64 + static_cast<unsigned>(__builtin_ctzll(word))));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

// Calls use(value) and define(value, early) for the values of a step that need a place. `early`
// results are written before all sources have been read.
template <class Use, class Define>
void each_value(const Flow& flow, std::size_t index, Use use, Define define) {
  const Step& step = flow.steps[index];
  const auto counts = [&](ValueId value) { return value != no_value && !flow.presets[value]; };
  for (const ValueId value : step.sources) {
    if (counts(value)) use(value);
  }
  if (counts(step.guard)) use(step.guard);
  const bool written = flow.extra_written[index];
  for (std::uint32_t i = 0; i < step.extra_count; ++i) {
    const ValueId value = flow.extra[step.first_extra + i];
    if (!counts(value)) continue;
    if (written) {
      define(value, true);
    } else {
      use(value);
    }
  }
  if (counts(step.dst)) define(step.dst, written);
}

struct Interval {
  ValueId value = no_value;
  std::uint32_t begin = ~0U, end = 0;
  void reach(std::uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
};

// The values that are live where blocks begin and end. The sets hold numbers of `crossing`: most
// values are read only in the block that writes them, and are in none.
struct Liveness {
  std::vector<Block> blocks;
  std::vector<ValueId> crossing;
  std::vector<Set> in, out;
};

// Calls use(block, value) and define(block, value) for the values that a block may read from those
// before it, and that it writes wholly. A guarded write leaves the old value in the other lanes: it
// is read too.
template <class Use, class Define>
void each_exposed(const Flow& flow, const std::vector<Block>& blocks, Use use, Define define) {
  std::vector<std::uint32_t> written(flow.widths.size(), ~0U);  // by value: the block that did last
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const auto read = [&](ValueId value) {
      if (written[value] != b) use(b, value);
    };
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      const bool partial = flow.steps[i].guard != no_value;
      each_value(flow, i, read, [&](ValueId value, bool) {
        if (partial && !flow.temporaries[value]) return read(value);
        written[value] = b;
        define(b, value);
      });
    }
  }
}

Liveness find_liveness(const Flow& flow) {
  constexpr std::uint64_t units_of_word = 16;  // three sets, made, filled and read
  constexpr std::uint32_t none = ~0U;
  Liveness live{find_blocks(flow), {}, {}, {}};
  const std::vector<Block>& blocks = live.blocks;
  std::vector<std::uint32_t> number(flow.widths.size(), none);
  each_exposed(
      flow, blocks,
      [&](std::uint32_t, ValueId value) {
        if (number[value] != none) return;
        number[value] = static_cast<std::uint32_t>(live.crossing.size());
        live.crossing.push_back(value);
      },
      [](std::uint32_t, ValueId) {});
  const std::uint64_t words = live.crossing.size() / 64 + 1;
  flow.work.spend(units_of_word * words * blocks.size());
  live.in.assign(blocks.size(), Set(live.crossing.size()));
  live.out = live.in;
  std::vector<Set> killed = live.in;
  each_exposed(
      flow, blocks, [&](std::uint32_t b, ValueId value) { live.in[b].add(number[value]); },
      [&](std::uint32_t b, ValueId value) {
        if (number[value] != none) killed[b].add(number[value]);
      });
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t b = blocks.size(); b-- > 0;) {
      flow.work.spend(words * (3 + blocks[b].successors.size()));
      for (const std::uint32_t next : blocks[b].successors) {
        changed |= live.out[b].merge(live.in[next]);
      }
      Set through = live.out[b];
      through.subtract(killed[b]);
      changed |= live.in[b].merge(through);
    }
  }
  return live;
}

// Live from `begin` to `end`, in positions: step i reads at 2i and writes at 2i + 1.
std::vector<Interval> find_intervals(const Flow& flow) {
  const Liveness live = find_liveness(flow);
  const std::vector<Block>& blocks = live.blocks;
  const std::size_t values = flow.widths.size();
  std::vector<Interval> intervals(values);
  for (ValueId value = 0; value < values; ++value) intervals[value].value = value;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    live.in[b].each([&](std::uint32_t crossing) {
      intervals[live.crossing[crossing]].reach(2 * blocks[b].begin);
    });
    live.out[b].each([&](std::uint32_t crossing) {
      intervals[live.crossing[crossing]].reach(2 * blocks[b].end - 1);
    });
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      each_value(
          flow, i, [&](ValueId value) { intervals[value].reach(2 * i); },
          [&](ValueId value, bool early) {
            if (early) intervals[value].reach(2 * i);
            intervals[value].reach(2 * i + 1);
          });
    }
  }
  std::erase_if(intervals, [](const Interval& interval) { return interval.begin == ~0U; });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.begin < b.begin || (a.begin == b.begin && a.value < b.value);
  });
  return intervals;
}

constexpr std::size_t class_of(std::uint8_t width) {
  return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

// Slots are never shared between widths, so two values overlap wholly or not at all.
class Slots {
 public:
  Slots(Code& code, std::uint32_t line) : code_(code), line_(line) {}

  Place add(std::uint8_t width) {
    if (code_.scalar_bytes >= limits::thread_registers.most) {
      throw ptx::SyntaxError(line_, limits::beyond(limits::thread_registers));
    }
    const Place place{code_.lockstep_bytes, code_.scalar_bytes, width};
    code_.lockstep_bytes += width * group_lanes;
    code_.scalar_bytes += scalar_slot;
    code_.slots.push_back(place);
    return place;
  }

 private:
  Code& code_;
  std::uint32_t line_;
};

}  // namespace

std::vector<std::vector<ValueId>> live_at(const Flow& flow,
                                          const std::vector<std::uint32_t>& steps) {
  constexpr std::uint64_t units_of_saved_value = 16;  // it takes memory, twice
  const Liveness liveness = find_liveness(flow);
  std::unordered_map<std::uint32_t, std::size_t> block_of;
  for (std::size_t i = 0; i < liveness.blocks.size(); ++i) block_of[liveness.blocks[i].begin] = i;
  std::vector<std::vector<ValueId>> live;
  for (const std::uint32_t step : steps) {
    liveness.in[block_of.at(step)].each([&, &values = live.emplace_back()](std::uint32_t crossing) {
      flow.work.spend(units_of_saved_value);
      values.push_back(liveness.crossing[crossing]);
    });
  }
  return live;
}

void give_places(const Flow& flow, Code& code) {
  code.places.assign(flow.widths.size(), {});
  Slots slots(code, flow.work.line);
  for (const Preset& preset : code.presets) code.places[preset.value] = slots.add(preset.width);

  struct Busy {
    std::uint32_t end;
    Place place;
  };
  std::vector<Busy> busy;  // a heap: the one that ends first on top
  const auto later = [](const Busy& a, const Busy& b) { return a.end > b.end; };
  std::array<std::vector<Place>, 4> free;
  for (const Interval& interval : find_intervals(flow)) {
    while (!busy.empty() && busy.front().end < interval.begin) {
      std::pop_heap(busy.begin(), busy.end(), later);
      free[class_of(busy.back().place.width)].push_back(busy.back().place);
      busy.pop_back();
    }
    const std::uint8_t width = flow.widths[interval.value];
    std::vector<Place>& candidates = free[class_of(width)];
    Place place;
    if (candidates.empty()) {
      place = slots.add(width);
    } else {
      place = candidates.back();
      candidates.pop_back();
    }
    code.places[interval.value] = place;
    busy.push_back({interval.end, place});
    std::push_heap(busy.begin(), busy.end(), later);
  }
}

}  // namespace ctxbroker::software::exec::lower
