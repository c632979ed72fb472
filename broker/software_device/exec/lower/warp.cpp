// SPDX-License-Identifier: Apache-2.0
// Operations across a warp: shuffles, votes, matches, reductions.
#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

struct Targets {
  ValueId value = no_value;
  std::vector<ValueId> predicate;  // none or one
};

// "%r1|%p1": the second is optional.
Targets targets_of(Builder& b, Type type) {
  const Operand& to = b.operand(0);
  if (to.kind != Operand::Kind::reg_pair) return {b.destination(to, type), {}};
  Targets targets{b.destination(to.elements.at(0), type), {}};
  targets.predicate.push_back(b.destination(to.elements.at(1), Type::pred));
  return targets;
}

void emit(Builder& b, const std::string& op, const Targets& to,
          std::initializer_list<ValueId> sources) {
  if (to.predicate.empty()) {
    b.emit(op, to.value, sources);
  } else {
    b.emit_extra(op, to.value, sources, to.predicate, true);
  }
}

void shfl(Builder& b) {
  Modifiers m(b.instruction());
  const bool sync = m.take("sync");
  const std::string_view mode = m.take_any({"up", "down", "bfly", "idx"});
  if (m.take_type() != Type::b32 || !m.empty() || mode.empty()) b.unsupported();
  b.check_operands(sync ? 5 : 4, sync ? 5 : 4);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::u32);
  const ValueId bounds = b.source(b.operand(3), Type::u32);
  const ValueId members = sync ? b.source(b.operand(4), Type::u32) : b.literal(4, 0);
  emit(b, std::string("shfl.").append(mode), targets_of(b, Type::b32), {x, y, bounds, members});
}

// One source and, with .sync, the lanes that take part.
void across(Builder& b, const std::string& op, Type source, Type result, bool sync) {
  b.check_operands(sync ? 3 : 2, sync ? 3 : 2);
  const ValueId x = b.source(b.operand(1), source);
  const ValueId members = sync ? b.source(b.operand(2), Type::u32) : no_value;
  emit(b, op, targets_of(b, result), {x, no_value, no_value, members});
}

void vote(Builder& b) {
  Modifiers m(b.instruction());
  const bool sync = m.take("sync");
  const std::string_view mode = m.take_any({"all", "any", "uni", "ballot"});
  const Type type = m.take_type();
  if (!m.empty() || mode.empty() || type != (mode == "ballot" ? Type::b32 : Type::pred)) {
    b.unsupported();
  }
  across(b, std::string("vote.").append(mode), Type::pred, type, sync);
}

void match(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view mode = m.take_any({"any", "all"});
  const bool sync = m.take("sync");
  const Type type = m.take_type();
  if (!m.empty() || mode.empty() || !sync) b.unsupported();
  across(b, std::string("match.").append(mode).append(".").append(name_of(type)), type, Type::b32,
         true);
}

void redux(Builder& b) {
  Modifiers m(b.instruction());
  const bool sync = m.take("sync");
  const std::string_view mode = m.take_any({"add", "min", "max", "and", "or", "xor"});
  const Type type = m.take_type();
  const bool on_bits = mode == "and" || mode == "or" || mode == "xor";
  const bool fits = on_bits ? type == Type::b32 : type == Type::u32 || type == Type::s32;
  if (!m.empty() || !sync || mode.empty() || !fits) b.unsupported();
  std::string op = std::string("redux.").append(mode);
  if (mode == "min" || mode == "max") op.append(".").append(name_of(type));
  across(b, op, type, type, true);
}

void activemask(Builder& b) {
  Modifiers m(b.instruction());
  if (m.take_type() != Type::b32 || !m.empty()) b.unsupported();
  b.check_operands(1, 1);
  b.emit("activemask", b.destination(b.operand(0), Type::b32), {});
}

}  // namespace

const Family warp_family[] = {
    {"shfl", shfl}, {"vote", vote}, {"match", match}, {"redux", redux}, {"activemask", activemask},
    {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
