// SPDX-License-Identifier: Apache-2.0
// Branches, ends, barriers and fences.
#include <algorithm>

#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"
#include "exec/lower/outlined.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

void bra(Builder& b) {
  Modifiers m(b.instruction());
  m.ignore({"uni"});
  if (!m.empty()) b.unsupported();
  b.check_operands(1, 1);
  if (b.operand(0).kind != Operand::Kind::label) b.fail("bra needs a label");
  b.branch(b.label_named(b.operand(0).name));
}

// brx.idx: one comparison and branch for each target.
void brx(Builder& b) {
  Modifiers m(b.instruction());
  m.ignore({"uni"});
  if (!m.take("idx") || !m.empty() || b.is_guarded()) b.unsupported();
  b.check_operands(2, 2);
  const ValueId index = b.source(b.operand(0), Type::u32);
  const auto table = b.scope().tables.find(b.operand(1).name);
  if (table == b.scope().tables.end()) {
    b.fail("unknown branch table " + quoted(b.operand(1).name));
  }
  const std::vector<std::string>& targets = table->second->targets;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const ValueId matches = b.temp(1);
    b.emit("setp.eq.b32", matches, {index, b.literal(4, i)});
    b.branch_if(b.label_named(targets[i]), matches);
  }
  b.emit("trap", no_value, {});  // an index beyond the table
}

void ret(Builder& b) {
  Modifiers m(b.instruction());
  m.ignore({"uni"});
  if (!m.empty()) b.unsupported();
  if (b.scope().caller == nullptr && !b.in_kernel()) {
    return_from_outlined(b);
  } else if (b.scope().caller == nullptr) {
    b.emit("exit", no_value, {});
  } else {
    b.branch(b.scope().end);
  }
}

void end(Builder& b) {
  if (!b.instruction().modifiers.empty()) b.unsupported();
  b.emit("exit", no_value, {});
}

void trap(Builder& b) {
  b.emit("trap", no_value, {});
}

void fence(Builder& b) {
  b.emit("fence", no_value, {});
}

void nothing(Builder&) {}

ValueId barrier_number(Builder& b, const Operand& operand) {
  b.expect_constant_up_to(barrier_count - 1, operand);
  return b.source(operand, Type::u32);
}

ValueId barrier_threads(Builder& b, const Operand& operand) {
  if (operand.kind == Operand::Kind::integer && operand.integer % 32 != 0) {
    b.fail("the number of threads at a barrier must be a multiple of 32, not " +
           std::to_string(static_cast<std::int64_t>(operand.integer)));
  }
  return b.source(operand, Type::u32);
}

// bar.red p, number [, threads], vote: a barrier that counts votes.
void barrier_vote(Builder& b, Modifiers& m) {
  const std::string_view how = m.take_any({"popc", "and", "or"});
  const Type type = m.take_type();
  if (!m.empty() || how.empty()) b.unsupported();
  b.check_operands(3, 4);
  const std::size_t last = b.instruction().operands.size() - 1;
  const BarrierMode mode = how == "popc"  ? BarrierMode::count
                           : how == "and" ? BarrierMode::all
                                          : BarrierMode::any;
  if (type != (how == "popc" ? Type::u32 : Type::pred)) b.unsupported();
  const ValueId number = barrier_number(b, b.operand(1));
  const ValueId threads = last == 3 ? barrier_threads(b, b.operand(2)) : no_value;
  const ValueId vote = b.predicate(b.operand(last));
  b.emit("barrier", b.destination(b.operand(0), type), {number, threads, vote},
         static_cast<std::int64_t>(mode));
}

// bar.sync, barrier.sync.aligned, bar.arrive, bar.warp.sync. Aligned or not is all the same here.
void barrier(Builder& b) {
  Modifiers m(b.instruction());
  m.ignore({"aligned", "cta"});
  if (m.take("warp")) {
    if (!m.take("sync") || !m.empty()) b.unsupported();
    b.check_operands(1, 1);
    const ValueId members = b.source(b.operand(0), Type::b32);
    b.emit("warp.sync", no_value, {no_value, no_value, no_value, members});
    return;
  }
  if (m.take("red")) return barrier_vote(b, m);
  const bool arrives = m.take("arrive");
  if ((!arrives && !m.take("sync")) || !m.empty()) b.unsupported();
  b.check_operands(arrives ? 2 : 1, 2);
  const ValueId number = barrier_number(b, b.operand(0));
  const ValueId threads =
      b.instruction().operands.size() == 2 ? barrier_threads(b, b.operand(1)) : no_value;
  b.emit("barrier", no_value, {number, threads},
         static_cast<std::int64_t>(arrives ? BarrierMode::arrive : BarrierMode::sync));
}

// It waits as long as it likes, and that is no time at all.
void nanosleep(Builder& b) {
  Modifiers m(b.instruction());
  if (m.take_type() != Type::u32 || !m.empty()) b.unsupported();
  b.check_operands(1, 1);
  b.source(b.operand(0), Type::u32);
}

}  // namespace

const Family control_family[] = {
    {"bra", bra},
    {"brx", brx},
    {"ret", ret},
    {"exit", end},
    {"trap", trap},
    {"bar", barrier},
    {"barrier", barrier},
    {"membar", fence},
    {"fence", fence},
    {"brkpt", trap},
    {"nanosleep", nanosleep},
    {"pmevent", nothing},
    {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
