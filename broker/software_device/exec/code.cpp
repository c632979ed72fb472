// SPDX-License-Identifier: Apache-2.0
#include "exec/code.hpp"

namespace ctxbroker::software::exec {

const Instr* Code::lockstep(CpuLevel level) const {
  Resolved& into = resolved_[static_cast<std::size_t>(level)];
  std::call_once(into.once, [&] { resolve(into, level, false); });
  return into.instructions.data();
}

const Instr* Code::scalar(CpuLevel level) const {
  Resolved& into = resolved_[3 + static_cast<std::size_t>(level)];
  std::call_once(into.once, [&] { resolve(into, level, true); });
  return into.instructions.data();
}

void Code::resolve(Resolved& into, CpuLevel level, bool scalar) const {
  const auto offset = [&](ValueId value) {
    if (value == no_value) return no_offset;
    return scalar ? places[value].scalar : places[value].lockstep;
  };
  for (const ValueId value : extra) into.extra.push_back(offset(value));
  into.instructions.resize(steps.size());
  std::uint8_t site = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const OpEntry& entry = op_entry(level, step.op);
    Instr& in = into.instructions[i];
    in.scalar = entry.scalar;
    in.dst = offset(step.dst);
    in.a = offset(step.sources[0]);
    in.b = offset(step.sources[1]);
    in.c = offset(step.sources[2]);
    in.d = offset(step.sources[3]);
    in.guard = offset(step.guard);
    in.guard_negated = step.guard_negated;
    in.immediate = step.immediate;
    in.extra = step.extra_count == 0 ? nullptr : into.extra.data() + step.first_extra;
    in.line = step.line;
    in.kind = entry.kind;
    in.width = entry.dst_width;
    if (entry.kind == Kind::effect) in.site = site++ % site_count;
    if (entry.kind == Kind::jump) {
      const std::vector<std::uint32_t>& table = tables[static_cast<std::size_t>(step.immediate)];
      in.extra = table.data();
      in.immediate = static_cast<std::int64_t>(table.size());
    }
    if (scalar) {
      if (entry.kind == Kind::jump) in.target = into.instructions.data();
      if (entry.kind == Kind::branch) in.target = into.instructions.data() + step.immediate;
      // Steering operations look at their guard themselves.
      const bool wrapped = entry.kind == Kind::pure || entry.kind == Kind::effect;
      if (step.guard != no_value && wrapped) {
        in.inner = entry.scalar;
        in.scalar = level_of(level).scalar_guard;
      }
    } else if (entry.kind == Kind::pure) {
      in.pure = entry.pure;
    } else if (step.row != no_row) {
      in.effect = entry.row;
      in.a = step.row;
    } else {
      in.effect = entry.effect;
    }
  }
}

}  // namespace ctxbroker::software::exec
