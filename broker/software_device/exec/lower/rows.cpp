// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "exec/lower/flow.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

// How a value differs from thread to thread of a block of one dimension.
struct Course {
  bool known = false;
  std::int64_t step = 0;  // from a thread to the next, until the value wraps
  // A 32-bit value that may wrap was widened: the step is then another one at that place. With one
  // such place only, the first and the last thread tell whether the block has it.
  bool widened = false;
};

// Small enough that no value of a block of 1,024 threads wraps more than once.
constexpr std::int64_t largest_step = 1 << 20;

Course course(std::int64_t step, bool widened) {
  if (std::abs(step) > largest_step) return {};
  return {true, step, widened};
}

Course sum(const Course& a, const Course& b, std::int64_t sign = 1) {
  if (!a.known || !b.known || (a.widened && b.widened)) return {};
  return course(a.step + sign * b.step, a.widened || b.widened);
}

class RowFinder {
 public:
  RowFinder(const Flow& flow, const Code& code) : flow_(flow), code_(code) {
    count_writes();
    courses_.resize(flow.widths.size());
    literals_.resize(flow.widths.size());
    for (const Preset& preset : code.presets) add(preset);
    for (std::size_t i = 0; i < flow.steps.size(); ++i) {
      const Step& step = flow.steps[i];
      if (step.dst == no_value || writes_[step.dst] != 1 || step.guard != no_value) continue;
      courses_[step.dst] = of(step);
      if (courses_[step.dst].known) address_steps_.push_back(i);
    }
  }

  bool is_row(const Step& step) const {
    const std::uint32_t bytes = entry_of(step).row_bytes;
    if (bytes == 0) return false;
    const Course& address = courses_[step.sources[0]];
    return address.known && address.step == bytes;
  }
  // The steps that calculate what is known of addresses, in their order.
  const std::vector<std::size_t>& address_steps() const { return address_steps_; }

  static const OpEntry& entry_of(const Step& step) { return op_entry(CpuLevel::baseline, step.op); }

 private:
  void count_writes() {
    writes_.resize(flow_.widths.size());
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      const Step& step = flow_.steps[i];
      if (step.dst != no_value) ++writes_[step.dst];
      if (!flow_.extra_written[i]) continue;
      for (std::uint32_t k = 0; k < step.extra_count; ++k) {
        const ValueId value = flow_.extra[step.first_extra + k];
        if (value != no_value) ++writes_[value];
      }
    }
  }

  void add(const Preset& preset) {
    Course& known = courses_[preset.value];
    if (preset.origin != Origin::thread) {
      known = course(0, false);
      if (preset.origin != Origin::literal) return;
      literals_[preset.value] = preset.width == 8 ? static_cast<std::int64_t>(preset.bits)
                                                  : static_cast<std::int32_t>(preset.bits);
      return;
    }
    const auto which = static_cast<ThreadValue>(preset.index);
    if (which == ThreadValue::tid_x) known = course(1, false);
    if (which == ThreadValue::tid_y || which == ThreadValue::tid_z) known = course(0, false);
  }

  // Of the operations with which compilers calculate addresses.
  Course of(const Step& step) const {
    const std::string_view name = entry_of(step).name;
    const auto source = [&](std::size_t i) { return courses_[step.sources[i]]; };
    if (name == "mov") return source(0);
    if (name == "add.b32" || name == "add.b64") return sum(source(0), source(1));
    if (name == "sub.b32" || name == "sub.b64") return sum(source(0), source(1), -1);
    if (name == "extend.s32.b64" || name == "extend.u32.b64") return widened(source(0));
    if (name == "shl.b32" || name == "shl.b64") {
      const std::optional<std::int64_t> by = literals_[step.sources[1]];
      return by && *by >= 0 && *by <= 20 ? times(source(0), std::int64_t{1} << *by) : Course{};
    }
    if (name == "mul.lo.b32" || name == "mul.lo.b64") return product(step);
    if (name == "mad.lo.b32" || name == "mad.lo.b64") return sum(product(step), source(2));
    if (name == "mul.wide.s32" || name == "mul.wide.u32") return widened(product(step));
    if (name == "mad.wide.s32" || name == "mad.wide.u32") {
      return sum(widened(product(step)), source(2));
    }
    return {};
  }

  Course product(const Step& step) const {
    const Course a = courses_[step.sources[0]], b = courses_[step.sources[1]];
    if (const auto factor = literals_[step.sources[1]]) return times(a, *factor);
    if (const auto factor = literals_[step.sources[0]]) return times(b, *factor);
    const bool is_same = a.known && b.known && a.step == 0 && b.step == 0;
    return is_same ? course(0, false) : Course{};
  }
  static Course times(const Course& a, std::int64_t factor) {
    if (!a.known || std::abs(factor) > largest_step) return {};
    return course(a.step * factor, a.widened);
  }
  static Course widened(const Course& a) {
    if (!a.known || a.widened) return {};
    return course(a.step, a.step != 0);
  }

  const Flow& flow_;
  const Code& code_;
  std::vector<unsigned> writes_;                       // by value: how many steps write it
  std::vector<Course> courses_;                        // by value
  std::vector<std::optional<std::int64_t>> literals_;  // by value
  std::vector<std::size_t> address_steps_;
};

bool has_loop_or_jump(const Flow& flow) {
  for (std::size_t i = 0; i < flow.steps.size(); ++i) {
    const Kind kind = RowFinder::entry_of(flow.steps[i]).kind;
    if (kind == Kind::jump) return true;
    if (kind == Kind::branch && flow.steps[i].immediate <= static_cast<std::int64_t>(i))
      return true;
  }
  return false;
}

template <class F>
void each_read(const Flow& flow, std::size_t index, F f) {
  const Step& step = flow.steps[index];
  const auto read = [&](ValueId value) {
    if (value != no_value) f(value);
  };
  for (const ValueId value : step.sources) read(value);
  read(step.guard);
  for (std::uint32_t i = 0; !flow.extra_written[index] && i < step.extra_count; ++i) {
    read(flow.extra[step.first_extra + i]);
  }
}

// Finds the steps that calculate what nobody reads, those that only they read among them.
std::vector<bool> find_unread(const Flow& flow) {
  std::vector<std::uint32_t> reads(flow.widths.size());
  std::vector<std::vector<std::uint32_t>> writers(flow.widths.size());  // that may be dropped
  for (std::uint32_t i = 0; i < flow.steps.size(); ++i) {
    const Step& step = flow.steps[i];
    each_read(flow, i, [&](ValueId value) { ++reads[value]; });
    const bool is_pure = RowFinder::entry_of(step).kind == Kind::pure;
    if (is_pure && step.extra_count == 0) writers[step.dst].push_back(i);
  }
  std::vector<ValueId> unread;
  for (ValueId value = 0; value < reads.size(); ++value) {
    if (reads[value] == 0) unread.push_back(value);
  }
  std::vector<bool> dropped(flow.steps.size());
  while (!unread.empty()) {
    const ValueId value = unread.back();
    unread.pop_back();
    for (const std::uint32_t writer : writers[value]) {
      dropped[writer] = true;
      each_read(flow, writer, [&](ValueId source) {
        if (--reads[source] == 0) unread.push_back(source);
      });
    }
  }
  return dropped;
}

void drop_unread(Flow& flow) {
  const std::vector<bool> dropped = find_unread(flow);
  std::vector<Step> steps;
  std::vector<bool> extra_written;
  std::vector<std::int64_t> moved;  // by old step: where it, or the next one that is left, is now
  for (std::size_t i = 0; i < flow.steps.size(); ++i) {
    moved.push_back(static_cast<std::int64_t>(steps.size()));
    if (dropped[i]) continue;
    steps.push_back(flow.steps[i]);
    extra_written.push_back(flow.extra_written[i]);
  }
  for (Step& step : steps) {
    if (RowFinder::entry_of(step).kind != Kind::branch) continue;
    step.immediate = moved[static_cast<std::size_t>(step.immediate)];
  }
  flow.steps = std::move(steps);
  flow.extra_written = std::move(extra_written);
}

// Takes the flow's steps, and those of the kernel's presets that they read.
void fill(Code& code, const Flow& flow, const Code& kernel) {
  code.steps = flow.steps;
  code.extra = flow.extra;
  std::vector<bool> is_read(flow.widths.size());
  for (std::size_t i = 0; i < flow.steps.size(); ++i) {
    each_read(flow, i, [&](ValueId value) { is_read[value] = true; });
  }
  std::copy_if(kernel.presets.begin(), kernel.presets.end(), std::back_inserter(code.presets),
               [&](const Preset& preset) { return is_read[preset.value]; });
  give_places(flow, code);
}

}  // namespace

std::shared_ptr<const Rows> find_rows(const Flow& flow, const Code& code) {
  if (has_loop_or_jump(flow)) return nullptr;
  const RowFinder finder(flow, code);
  auto rows = std::make_shared<Rows>();
  Flow body = flow;
  std::unordered_map<ValueId, std::uint16_t> numbers;  // of rows, by address
  for (Step& step : body.steps) {
    if (!finder.is_row(step)) continue;
    const std::uint32_t bytes = RowFinder::entry_of(step).row_bytes;
    const ValueId address = std::exchange(step.sources[0], no_value);
    const auto [place, fresh] =
        numbers.try_emplace(address, static_cast<std::uint16_t>(rows->rows.size()));
    if (fresh && rows->rows.size() == no_row) return nullptr;
    step.row = place->second;
    if (fresh) rows->rows.push_back({address, bytes});
  }
  if (rows->rows.empty()) return nullptr;
  drop_unread(body);

  // An exit that reads the addresses keeps them until there.
  Flow addresses = flow;
  addresses.steps.clear();
  for (const std::size_t step : finder.address_steps()) addresses.steps.push_back(flow.steps[step]);
  Step exit;
  exit.op = find_op("exit")->id;
  exit.first_extra = static_cast<std::uint32_t>(addresses.extra.size());
  exit.extra_count = static_cast<std::uint16_t>(rows->rows.size());
  for (const Rows::Row& row : rows->rows) addresses.extra.push_back(row.address);
  addresses.steps.push_back(exit);
  addresses.extra_written.assign(addresses.steps.size(), false);
  drop_unread(addresses);

  fill(rows->addresses, addresses, code);
  fill(rows->body, body, code);
  rows->body.static_shared_bytes = code.static_shared_bytes;
  rows->body.local_bytes = code.local_bytes;
  rows->body.uses_heap = code.uses_heap;
  rows->body.has_barrier = code.has_barrier;
  rows->body.has_warp_operation = code.has_warp_operation;
  rows->body.has_atomic = code.has_atomic;
  return rows;
}

}  // namespace ctxbroker::software::exec::lower
