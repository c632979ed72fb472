// SPDX-License-Identifier: Apache-2.0
// What is left to do when all steps of a kernel are there: labels, frames, places.
#include <algorithm>

#include "exec/lower/builder.hpp"
#include "exec/lower/flow.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

constexpr std::uint64_t frame_alignment = 16;
constexpr std::uint64_t saved_bytes = 8;

// The values by width, as stack.save and stack.load want them, and how many there are of each.
std::uint64_t sort_by_width(std::vector<ValueId>& values, const std::vector<std::uint8_t>& widths,
                            std::uint32_t line) {
  std::stable_sort(values.begin(), values.end(),
                   [&](ValueId a, ValueId b) { return widths[a] < widths[b]; });
  std::uint64_t packed = 0;
  unsigned shift = saved_area_bits;
  for (const std::uint8_t width : {1, 2, 4, 8}) {
    const auto count = std::count_if(values.begin(), values.end(),
                                     [&](ValueId value) { return widths[value] == width; });
    if (count > most_saved) {
      throw ptx::SyntaxError(line, "a function that may call itself has more than " +
                                       std::to_string(most_saved) + " values of one width");
    }
    packed |= static_cast<std::uint64_t>(count) << shift;
    shift += saved_count_bits;
  }
  return packed;
}

}  // namespace

std::uint64_t Builder::frame_size(std::uint32_t function) const {
  return round_up(frame_bytes_[function], frame_alignment);
}

void Builder::resolve_labels() {
  const auto resolve = [&](ValueId& value) {
    if (value != no_value) value = resolved(value);
  };
  for (Step& step : steps_) {
    for (ValueId& value : step.sources) resolve(value);
    resolve(step.guard);
    if (op_entry(CpuLevel::baseline, step.op).kind == Kind::branch) {
      step.immediate = labels_[static_cast<std::size_t>(step.immediate)];
    }
  }
  for (ValueId& value : extra_) resolve(value);
}

Flow Builder::make_flow() {
  Flow flow;
  flow.steps = std::move(steps_);
  flow.extra_written = std::move(extra_written_);
  flow.extra = std::move(extra_);
  for (std::vector<LabelId>& table : tables_) {
    for (LabelId& target : table) {
      if (target != no_target) target = labels_[target];
    }
  }
  flow.tables = std::move(tables_);
  for (const Value& value : values_) {
    flow.widths.push_back(value.width);
    flow.presets.push_back(value.preset);
    flow.temporaries.push_back(value.temporary);
  }
  flow.work = {&budget_.analysis, line_};
  return flow;
}

// A call in a function that may be running already saves what the function reads after the call.
void Builder::fill_saved(Flow& flow) {
  if (saved_.empty()) return;
  std::vector<std::uint32_t> after;
  for (const Saved& saved : saved_) after.push_back(labels_[sites_[saved.site]]);
  std::vector<std::vector<ValueId>> live = live_at(flow, after);
  std::vector<std::uint64_t> areas;  // by function
  for (const std::uint64_t bytes : frame_bytes_) areas.push_back(round_up(bytes, saved_bytes));
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const Saved& saved = saved_[i];
    std::vector<ValueId>& values = live[i];
    std::erase_if(values, [&](ValueId value) {
      return value == frame_ || values_[value].owner != saved.owner;
    });
    const std::uint64_t counts = sort_by_width(values, flow.widths, line_);
    for (const std::size_t index : {saved.save, saved.load}) {
      Step& step = flow.steps[index];
      step.immediate = static_cast<std::int64_t>(counts | areas[saved.owner]);
      step.first_extra = static_cast<std::uint32_t>(flow.extra.size());
      step.extra_count = static_cast<std::uint16_t>(values.size());
    }
    flow.extra.insert(flow.extra.end(), values.begin(), values.end());
    std::uint64_t& frame = frame_bytes_[saved.owner];
    frame = std::max(frame, areas[saved.owner] + saved_bytes * values.size());
  }
}

// The sizes of frames, where steps and presets need them.
void Builder::fill_frames() {
  for (Preset& preset : presets_) {
    if (preset.origin != Origin::literal || preset.index < first_frame_index) continue;
    preset.bits = frame_size(preset.index - first_frame_index);
  }
}

std::shared_ptr<Code> Builder::finish() {
  instruction_ = nullptr;
  auto code = std::make_shared<Code>();
  const std::uint64_t shared = round_up(shared_bytes_, 16);
  for (Preset& preset : presets_) {
    const bool is_dynamic =
        preset.origin == Origin::literal && preset.index == dynamic_shared_index;
    if (is_dynamic) preset.bits += shared;
  }
  resolve_labels();
  Flow flow = make_flow();
  fill_saved(flow);
  fill_frames();
  for (const auto& [step, function] : frame_checks_) {
    flow.steps[step].immediate = static_cast<std::int64_t>(frame_size(function));
  }
  order_blocks(flow);
  code->steps = flow.steps;
  code->extra = flow.extra;
  code->tables = flow.tables;
  code->presets = std::move(presets_);
  give_places(flow, *code);
  code->static_shared_bytes = static_cast<std::uint32_t>(shared);
  code->shared_variable_bytes = static_cast<std::uint32_t>(shared_bytes_);
  code->local_bytes = static_cast<std::uint32_t>(frame_size(0));
  code->uses_stack = !outlined_.empty();
  for (const Step& step : code->steps) {
    const OpEntry& entry = op_entry(CpuLevel::baseline, step.op);
    const std::string_view name = entry.name;
    code->uses_heap = code->uses_heap || name.starts_with("heap.");
    code->has_barrier = code->has_barrier || entry.kind == Kind::barrier;
    code->has_warp_operation = code->has_warp_operation || entry.kind == Kind::converge;
    code->has_atomic = code->has_atomic || name.starts_with("atom.") || name == "fence";
  }
  code->rows = find_rows(flow, *code);
  return code;
}

}  // namespace ctxbroker::software::exec::lower
