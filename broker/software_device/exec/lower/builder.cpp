// SPDX-License-Identifier: Apache-2.0
#include "exec/lower/builder.hpp"

#include <algorithm>
#include <bit>
#include <charconv>

#include "exec/lower/modifiers.hpp"
#include "ptx/token_stream.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

std::uint64_t truncated(std::uint64_t bits, std::uint8_t width) {
  return width >= 8 ? bits : bits & ((1ULL << (8 * width)) - 1);
}

constexpr std::string_view vector_components = "xyzw";

// %envreg0 to %envreg31: the driver's own. Those that nothing relies on are 0.
bool is_environment(std::string_view name) {
  constexpr std::string_view prefix = "%envreg";
  if (!name.starts_with(prefix)) return false;
  unsigned number = 32;
  const char* const end = name.data() + name.size();
  return std::from_chars(name.data() + prefix.size(), end, number).ptr == end && number < 32;
}

}  // namespace

std::string quoted(const std::string& name) {
  return ptx::quoted(name);
}

const ptx::Variable* declaration_of(const Scope& scope, std::string_view name) {
  if (const auto one = scope.declared.find(name); one != scope.declared.end()) return one->second;
  // "%r12" is number 12 of "%r<N>", or number 2 of "%r1<N>".
  constexpr std::size_t most_digits = 7;
  const std::size_t first = name.size() - std::min(name.size(), most_digits);
  for (std::size_t split = name.size(); split > first && ptx::is_digit(name[split - 1]);) {
    --split;
    if (name[split] == '0' && split + 1 != name.size()) continue;
    const auto range = scope.ranges.find(name.substr(0, split));
    if (range == scope.ranges.end()) continue;
    std::uint32_t number = 0;
    std::from_chars(name.data() + split, name.data() + name.size(), number);
    if (number < range->second->register_count) return range->second;
  }
  return nullptr;
}

std::uint8_t register_width(Type type) noexcept {
  switch (type) {
    case Type::pred:
      return 1;
    case Type::b8:
    case Type::u8:
    case Type::s8:
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::b32:
    case Type::u32:
    case Type::s32:
    case Type::f32:
    case Type::f16x2:
    case Type::bf16x2:
      return 4;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
    case Type::b128:
    case Type::none:
      break;
  }
  return 0;
}

void Builder::begin(const Instruction& instruction) {
  instruction_ = &instruction;
  guard_ = no_value;
  guard_negated_ = false;
  if (instruction.guard) {
    guard_ = register_named(instruction.guard->predicate);
    if (width(guard_) != 1) {
      fail("the guard " + quoted(instruction.guard->predicate) + " is not a predicate register");
    }
    guard_negated_ = instruction.guard->negated;
  }
}

void Builder::spend(std::uint64_t steps) const {
  budget_.steps.spend(steps, line());
}

void Builder::fail(const std::string& message) const {
  throw ptx::SyntaxError(line(), message);
}

void Builder::unsupported() const {
  fail("instruction not supported by the software device: " + instruction_->full_name());
}

// --- values ----------------------------------------------------------------------------------

ValueId Builder::add_value(std::uint8_t width, bool temporary) {
  values_.push_back({width, temporary, false, owner_});
  aliases_.push_back(no_value);
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Builder::preset(const Preset& preset) {
  const PresetKey key{preset.origin,       preset.width, preset.sign_extend,
                      preset.memory_width, preset.index, preset.bits};
  const auto [place, fresh] = preset_values_.try_emplace(key, no_value);
  if (fresh) {
    place->second = add_value(preset.width, false);
    values_.back().preset = true;
    presets_.push_back(preset);
    presets_.back().value = place->second;
  }
  return place->second;
}

ValueId Builder::literal(std::uint8_t width, std::uint64_t bits) {
  return preset({.origin = Origin::literal, .width = width, .bits = truncated(bits, width)});
}

ValueId Builder::dynamic_shared(std::uint8_t width, std::uint64_t addend) {
  // The index keeps it apart from true literals until the static size is known.
  return preset(
      {.origin = Origin::literal, .width = width, .index = dynamic_shared_index, .bits = addend});
}

ValueId Builder::thread_value(ThreadValue which) {
  return preset({.origin = Origin::thread, .index = static_cast<std::uint32_t>(which)});
}

ValueId Builder::block_value(BlockValue which) {
  return preset({.origin = Origin::block,
                 .width = static_cast<std::uint8_t>(which == BlockValue::gridid ? 8 : 4),
                 .index = static_cast<std::uint32_t>(which)});
}

ValueId Builder::resolved(ValueId value) const {
  return aliases_[value] == no_value ? value : aliases_[value];
}

ValueId Builder::special(const std::string& name, Type type) {
  static const std::unordered_map<std::string_view, ThreadValue> of_thread = {
      {"%tid.x", ThreadValue::tid_x},         {"%tid.y", ThreadValue::tid_y},
      {"%tid.z", ThreadValue::tid_z},         {"%laneid", ThreadValue::laneid},
      {"%warpid", ThreadValue::warpid},       {"%lanemask_eq", ThreadValue::mask_eq},
      {"%lanemask_lt", ThreadValue::mask_lt}, {"%lanemask_le", ThreadValue::mask_le},
      {"%lanemask_gt", ThreadValue::mask_gt}, {"%lanemask_ge", ThreadValue::mask_ge}};
  static const std::unordered_map<std::string_view, BlockValue> of_block = {
      {"%ntid.x", BlockValue::ntid_x},
      {"%ntid.y", BlockValue::ntid_y},
      {"%ntid.z", BlockValue::ntid_z},
      {"%ctaid.x", BlockValue::ctaid_x},
      {"%ctaid.y", BlockValue::ctaid_y},
      {"%ctaid.z", BlockValue::ctaid_z},
      {"%nctaid.x", BlockValue::nctaid_x},
      {"%nctaid.y", BlockValue::nctaid_y},
      {"%nctaid.z", BlockValue::nctaid_z},
      {"%nwarpid", BlockValue::nwarpid},
      {"%gridid", BlockValue::gridid},
      {"%smid", BlockValue::zero},
      {"%nsmid", BlockValue::one},
      {"%dynamic_smem_size", BlockValue::dynamic_shared},
      {"%total_smem_size", BlockValue::total_shared},
      {"%envreg1", BlockValue::workspace_high},
      {"%envreg2", BlockValue::workspace_low}};
  static const std::unordered_map<std::string_view, std::string_view> read_when_run = {
      {"%clock", "clock.b32"},          {"%clock_hi", "clock.hi.b32"},
      {"%clock64", "clock.b64"},        {"%globaltimer", "timer.b64"},
      {"%globaltimer_lo", "timer.b32"}, {"%globaltimer_hi", "timer.hi.b32"}};
  if (const auto found = of_thread.find(name); found != of_thread.end()) {
    return thread_value(found->second);
  }
  if (const auto found = of_block.find(name); found != of_block.end()) {
    return block_value(found->second);
  }
  if (is_environment(name)) return block_value(BlockValue::zero);
  if (name == "WARP_SZ") return literal(register_width(type), 32);
  if (const auto found = read_when_run.find(name); found != read_when_run.end()) {
    const Op* op = find_op(found->second);
    const ValueId value = temp(op->entry->dst_width);
    emit(found->second, value, {});
    return value;
  }
  if (name.front() == '%') fail("unknown register " + quoted(name));
  fail("unknown name " + quoted(name));
}

ValueId Builder::constant(const Operand& operand, Type type) {
  const std::uint8_t wanted = register_width(type);
  if (wanted == 0) unsupported();
  if (is_half(type)) fail("a constant where " + instruction_->full_name() + " needs a register");
  if (operand.kind == Operand::Kind::integer) {
    if (type == Type::f32 || type == Type::f64) {
      fail("an integer where a floating-point constant (0f..., 0d...) is needed");
    }
    if (type == Type::pred) return literal(1, operand.integer != 0 ? 1 : 0);
    return literal(wanted, operand.integer);
  }
  const bool wants_single = wanted == 4;
  if (!wants_single && wanted != 8) fail("a floating-point constant where an integer is needed");
  const double value = operand.is_f32
                           ? std::bit_cast<float>(static_cast<std::uint32_t>(operand.floating_bits))
                           : std::bit_cast<double>(operand.floating_bits);
  if (wants_single) {
    return literal(4, operand.is_f32 ? operand.floating_bits
                                     : std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  }
  return literal(8, operand.is_f32 ? std::bit_cast<std::uint64_t>(value) : operand.floating_bits);
}

// --- operands --------------------------------------------------------------------------------

const Operand& Builder::operand(std::size_t index) const {
  if (index >= instruction_->operands.size()) {
    fail("too few operands of " + instruction_->full_name());
  }
  return instruction_->operands[index];
}

void Builder::check_operands(std::size_t least, std::size_t most) const {
  const std::size_t count = instruction_->operands.size();
  if (count < least) fail("too few operands of " + instruction_->full_name());
  if (count > most) fail("too many operands of " + instruction_->full_name());
}

void Builder::expect_constant_up_to(std::uint64_t most, const Operand& operand) const {
  if (operand.kind != Operand::Kind::integer || operand.integer <= most) return;
  fail("a constant of " + instruction_->full_name() + " must be between 0 and " +
       std::to_string(most) + ", not " +
       std::to_string(static_cast<std::int64_t>(operand.integer)));
}

bool Builder::is_register(const Operand& operand) {
  return operand.kind == Operand::Kind::reg && find_register(operand.name) != no_value;
}

// A declaration alone makes no value, so that "%r<1000000>" takes what its use takes.
ValueId Builder::find_register(const std::string& name) {
  if (const auto found = scope_->registers.find(name); found != scope_->registers.end()) {
    return found->second;
  }
  const ptx::Variable* declared = declaration_of(*scope_, name);
  if (declared == nullptr) {
    // A component of a vector: "%v.x".
    const std::size_t dot = name.size() < 2 ? 0 : name.size() - 2;
    if (name[dot] != '.') return no_value;
    declared = declaration_of(*scope_, std::string_view(name).substr(0, dot));
    const std::size_t component = vector_components.find(name.back());
    if (declared == nullptr || component >= declared->vector || declared->vector == 1) {
      return no_value;
    }
  } else if (declared->vector != 1) {
    return no_value;
  }
  return scope_->registers[name] = add_value(register_width(declared->type), false);
}

ValueId Builder::register_named(const std::string& name) {
  const ValueId found = find_register(name);
  if (found == no_value) fail("unknown register " + quoted(name));
  if (values_[found].width == 0) {
    fail("the software device has no registers as wide as " + quoted(name));
  }
  return found;
}

void Builder::check_width(ValueId value, std::uint8_t wanted, const Operand& operand) const {
  const std::uint8_t has = width(value);
  if (has == wanted) return;
  const auto say = [](std::uint8_t bytes) {
    return bytes == 1 ? std::string("a predicate") : std::to_string(bytes * 8) + " bits";
  };
  fail("type mismatch: " + quoted(operand.name) + " is " + say(has) + ", " +
       instruction_->full_name() + " needs " + say(wanted));
}

ValueId Builder::any_source(const Operand& operand, Type type) {
  switch (operand.kind) {
    case Operand::Kind::reg:
      if (operand.negated) {
        const ValueId inverted = temp(1);
        const ValueId value = register_named(operand.name);
        check_width(value, 1, operand);
        emit("not.pred", inverted, {value});
        return inverted;
      }
      if (is_register(operand)) return register_named(operand.name);
      return special(operand.name, type);
    case Operand::Kind::integer:
    case Operand::Kind::floating:
      return constant(operand, type);
    case Operand::Kind::symbol:
      if (operand.is_indexed && instruction_->opcode != "mov" && instruction_->opcode != "cvta") {
        break;
      }
      return symbol_value(operand, register_width(type));
    default:
      break;
  }
  fail("an operand of " + instruction_->full_name() + " is of the wrong kind");
}

ValueId Builder::source(const Operand& operand, Type type) {
  if (register_width(type) == 0) unsupported();
  const ValueId value = any_source(operand, type);
  check_width(value, register_width(type), operand);
  return value;
}

ValueId Builder::predicate(const Operand& operand) {
  return source(operand, Type::pred);
}

ValueId Builder::destination(const Operand& operand, Type type) {
  if (register_width(type) == 0) unsupported();
  if (operand.kind == Operand::Kind::sink) return temp(register_width(type));
  if (operand.kind != Operand::Kind::reg) {
    fail("the destination of " + instruction_->full_name() + " must be a register");
  }
  const ValueId value = register_named(operand.name);
  check_width(value, register_width(type), operand);
  return value;
}

ValueId Builder::any_destination(const Operand& operand) {
  if (operand.kind == Operand::Kind::sink) return no_value;
  if (operand.kind != Operand::Kind::reg) {
    fail("the destination of " + instruction_->full_name() + " must be a register");
  }
  return register_named(operand.name);
}

// --- steps -----------------------------------------------------------------------------------

Step& Builder::add_step(const Op& op, ValueId dst) {
  spend(1);
  Step& step = steps_.emplace_back();
  extra_written_.push_back(false);
  step.op = op.id;
  step.line = instruction_ == nullptr ? 0 : instruction_->line;
  step.dst = dst;
  // Temporaries are computed in all lanes: nobody reads them where the guard does not hold.
  const bool only_temporary =
      op.entry->kind == Kind::pure && dst != no_value && values_[dst].temporary;
  if (!only_temporary) {
    step.guard = guard_;
    step.guard_negated = guard_negated_;
  }
  return step;
}

Step& Builder::emit(std::string_view name, ValueId dst, std::initializer_list<ValueId> sources,
                    std::int64_t immediate) {
  const Op* op = find_op(name);
  if (op == nullptr) unsupported();
  const OpEntry& entry = *op->entry;
  const bool fits = (dst == no_value || entry.dst_width == 0 || width(dst) == entry.dst_width) &&
                    sources.size() >= entry.source_count;
  if (!fits) unsupported();
  std::size_t i = 0;
  for (const ValueId value : sources) {
    if (i < entry.source_count && value != no_value && width(value) != entry.source_widths[i]) {
      fail("type mismatch: operand " + std::to_string(i + 1) + " of " + instruction_->full_name() +
           " has the wrong width");
    }
    ++i;
  }
  Step& step = add_step(*op, dst);
  std::copy(sources.begin(), sources.end(), step.sources.begin());
  step.immediate = immediate;
  return step;
}

ValueId Builder::computed(std::string_view op, std::uint8_t width,
                          std::initializer_list<ValueId> sources) {
  const ValueId result = temp(width);
  emit(op, result, sources);
  return result;
}

Step& Builder::emit_extra(std::string_view name, ValueId dst,
                          std::initializer_list<ValueId> sources, const std::vector<ValueId>& extra,
                          bool extra_written) {
  Step& step = emit(name, dst, sources);
  step.first_extra = static_cast<std::uint32_t>(extra_.size());
  step.extra_count = static_cast<std::uint8_t>(extra.size());
  extra_.insert(extra_.end(), extra.begin(), extra.end());
  extra_written_.back() = extra_written;
  return step;
}

void Builder::move(ValueId to, ValueId value) {
  const bool just_computed = !steps_.empty() && values_[value].temporary &&
                             steps_.back().dst == value && width(to) == width(value) &&
                             op_entry(CpuLevel::baseline, steps_.back().op).kind == Kind::pure;
  if (just_computed) {
    // A temporary has no other reader after its move: its step may write the target itself.
    steps_.back().dst = to;
    if (!values_[to].temporary) {
      steps_.back().guard = guard_;
      steps_.back().guard_negated = guard_negated_;
    }
    return;
  }
  static constexpr std::string_view by_width[] = {"", "mov.pred", "mov.b16", "",       "mov.b32",
                                                  "", "",         "",        "mov.b64"};
  emit(by_width[width(to)], to, {value});
}

void Builder::assign(const Operand& dst, ValueId to, ValueId value) {
  const ValueId known = resolved(value);
  if (is_preset(known) && !is_guarded() && is_register(dst) && scope_->definitions[dst.name] == 1 &&
      width(known) == width(to)) {
    aliases_[to] = known;
    return;
  }
  move(to, value);
}

LabelId Builder::add_label() {
  labels_.push_back(0);
  return static_cast<LabelId>(labels_.size() - 1);
}

LabelId Builder::label_named(const std::string& name) const {
  const auto found = scope_->labels.find(name);
  if (found == scope_->labels.end()) fail("unknown label " + quoted(name));
  return found->second;
}

void Builder::branch(LabelId target) {
  emit("bra", no_value, {}, target);
}

void Builder::branch_if(LabelId target, ValueId predicate) {
  Step& step = emit("bra", no_value, {}, target);
  step.guard = predicate;
  step.guard_negated = false;
}

void Builder::skip_unless_guard(LabelId over) {
  if (!is_guarded()) return;
  Step& step = emit("bra", no_value, {}, over);
  step.guard_negated = !guard_negated_;
  guard_ = no_value;
  guard_negated_ = false;
}

std::uint64_t Builder::add_local(std::uint64_t size, std::uint64_t alignment) {
  std::uint64_t& bytes = frame_bytes_[owner_];
  const std::uint64_t offset = round_up(bytes, std::max<std::uint64_t>(alignment, 1));
  bytes = offset + size;
  static_assert(limits::thread_local_memory.most < 1U << saved_area_bits);
  if (bytes > limits::thread_local_memory.most) fail(limits::beyond(limits::thread_local_memory));
  return offset;
}

Symbol Builder::add_local_symbol(std::uint64_t size, std::uint64_t alignment) {
  return {.kind = in_kernel() ? Symbol::Kind::local : Symbol::Kind::frame,
          .offset = add_local(size, alignment)};
}

std::uint64_t Builder::add_shared(std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t offset = round_up(shared_bytes_, std::max<std::uint64_t>(alignment, 1));
  shared_bytes_ = offset + size;
  if (shared_bytes_ > limits::kernel_shared_memory.most) {
    fail(limits::beyond(limits::kernel_shared_memory));
  }
  return offset;
}

}  // namespace ctxbroker::software::exec::lower
