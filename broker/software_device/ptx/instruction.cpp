// SPDX-License-Identifier: Apache-2.0
#include "ptx/instruction.hpp"

#include <algorithm>
#include <utility>

#include "ptx/constant.hpp"

namespace ctxbroker::software::ptx {

namespace {

using Kind = Operand::Kind;

// Reads the operands of one instruction.
class OperandReader {
 public:
  OperandReader(Context& context, const Names& names, const Instruction& instruction)
      : context_(context), tokens_(context.tokens), names_(names), instruction_(instruction) {}

  Operand read() { return read_operand(0); }

 private:
  std::string where() const { return "in the operands of " + quoted(instruction_.full_name()); }

  Operand read_operand(std::size_t depth) {
    Operand operand = read_single(depth);
    if (!tokens_.at_symbol("|")) return operand;
    tokens_.take();
    Operand pair;
    pair.kind = Kind::reg_pair;
    pair.elements.push_back(std::move(operand));
    pair.elements.push_back(read_single(depth));
    for (const Operand& element : pair.elements) {
      if (element.kind != Kind::reg && element.kind != Kind::sink) {
        fail(tokens_.line(), "both sides of '|' must be registers " + where());
      }
    }
    return pair;
  }

  Operand read_single(std::size_t depth) {
    check_nesting(depth, tokens_.line());
    if (++count_ > limits::ptx_operands.most) {
      fail(tokens_.line(), limits::beyond(limits::ptx_operands));
    }
    context_.charge<Operand>(tokens_.line());
    if (tokens_.at_symbol("{")) return read_group("}", Kind::vector, depth);
    if (tokens_.at_symbol("[")) return read_address(depth);
    if (tokens_.at_symbol("(") && instruction_.opcode == "call") {
      return read_group(")", Kind::list, depth);
    }
    const bool is_minus = instruction_.opcode == "vmad" && tokens_.at_symbol("-") &&
                          tokens_.peek_second().kind == TokenKind::word;
    if (is_minus || tokens_.at_symbol("!")) {
      tokens_.take();
      Operand operand = read_name();
      if (operand.kind != Kind::reg) {
        fail(tokens_.line(),
             (is_minus ? "'-' needs a register " : "'!' needs a predicate register ") + where());
      }
      operand.negated = true;
      return operand;
    }
    if (at_constant(tokens_)) return parse_constant(tokens_);
    Operand operand = read_name();
    const bool may_be_array = operand.kind == Kind::symbol || operand.kind == Kind::label;
    if (may_be_array && tokens_.at_symbol("[")) read_index(operand);
    return operand;
  }

  // name[3], name[%r1], name[%r1+3]: an element of an array.
  void read_index(Operand& array) {
    tokens_.take();
    array.is_indexed = true;
    array.kind = Kind::symbol;
    if (at_constant(tokens_)) {
      const Operand index = parse_constant(tokens_);
      if (index.kind != Kind::integer) fail(tokens_.line(), "an index cannot be a float");
      array.offset = static_cast<std::int64_t>(index.integer);
    } else {
      const Operand index = read_name();
      if (index.kind != Kind::reg) {
        fail(tokens_.line(), "an index must be a constant or a register " + where());
      }
      array.index = index.name;
      array.offset = index.offset;
    }
    tokens_.expect_symbol("]", "after an index");
  }

  // {a, b} and (a, b), also empty.
  Operand read_group(std::string_view end, Kind kind, std::size_t depth) {
    tokens_.take();
    Operand group;
    group.kind = kind;
    if (tokens_.take_symbol_if(end)) return group;
    do {
      group.elements.push_back(read_operand(depth + 1));
    } while (tokens_.take_symbol_if(","));
    // The words of an error are made for an error only: modifiers can be long.
    if (!tokens_.take_symbol_if(end)) tokens_.fail_expected(quoted(end), where());
    return group;
  }

  // [%rd1+8], [name], [123], [name, {%r1, %r2}].
  Operand read_address(std::size_t depth) {
    tokens_.take();
    Operand address;
    if (at_constant(tokens_)) {
      address = parse_constant(tokens_);
      if (address.kind != Kind::integer) fail(tokens_.line(), "an address cannot be a float");
      address.offset = static_cast<std::int64_t>(address.integer);
      address.integer = 0;
    } else {
      address = read_name();
      if (address.kind == Kind::sink) fail(tokens_.line(), "'_' is no address");
      if (tokens_.at_symbol("+")) {
        tokens_.fail_expected("a constant", "after '+' in an address (registers cannot be added)");
      }
    }
    address.kind = Kind::address;
    while (tokens_.take_symbol_if(",")) address.elements.push_back(read_operand(depth + 1));
    tokens_.expect_symbol("]", "at the end of an address");
    return address;
  }

  // A register, symbol or label, with the offset that may follow a name.
  Operand read_name() {
    if (tokens_.peek().kind != TokenKind::word) tokens_.fail_expected("an operand", where());
    const Token token = tokens_.take();
    Operand operand;
    if (token.text == "_") {
      operand.kind = Kind::sink;
      return operand;
    }
    if (const auto found = names_.find(token.text)) {
      operand.kind = found->kind == NameKind::reg     ? Kind::reg
                     : found->kind == NameKind::label ? Kind::label
                                                      : Kind::symbol;
      operand.name = found->unique;
    } else {
      operand.kind = token.text.front() == '%' ? Kind::reg : Kind::label;
      operand.name = token.text;
    }
    while (tokens_.peek().kind == TokenKind::dot_word && tokens_.peek().joined) {
      operand.name.append(".").append(tokens_.take().text);  // %tid.x
    }
    const bool offset_follows = (tokens_.at_symbol("+") || tokens_.at_symbol("-")) &&
                                tokens_.peek_second().kind != TokenKind::word;
    if (offset_follows) operand.offset = parse_offset(tokens_);
    return operand;
  }

  Context& context_;
  TokenStream& tokens_;
  const Names& names_;
  const Instruction& instruction_;
  std::size_t count_ = 0;
};

// Whether the module is of this version of PTX or a newer one, and for sm_70 or a newer target.
bool is_since_6_4_for_sm_70(const Module& module) {
  const Version version = version_of(module.version);
  return version >= Version{6, 4} && target_of(module) >= 70;
}

// What PTX no longer has, or never had, without ".sync".
void refuse_without_sync(const Module& module, const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  const bool once_allowed = opcode == "shfl" || opcode == "vote";
  const bool never_allowed = opcode == "match" || opcode == "redux";
  if (!once_allowed && !never_allowed) return;
  const auto& modifiers = instruction.modifiers;
  if (std::find(modifiers.begin(), modifiers.end(), "sync") != modifiers.end()) return;
  if (once_allowed && !is_since_6_4_for_sm_70(module)) return;
  Instruction instead = instruction;
  const bool after_mode = opcode == "match" && !modifiers.empty();
  instead.modifiers.insert(instead.modifiers.begin() + (after_mode ? 1 : 0), "sync");
  const std::string since =
      once_allowed ? " is not allowed since PTX 6.4 for sm_70 and newer" : " does not exist";
  fail(instruction.line, quoted(instruction.full_name()) + since + "; write " +
                             quoted(instead.full_name()) +
                             " and add the mask of the lanes that take part as its last operand");
}

Guard parse_guard(Context& context, const Names& names) {
  Guard guard;
  guard.negated = context.tokens.take_symbol_if("!");
  const Token token = context.tokens.expect(TokenKind::word, "a predicate register", "after '@'");
  const auto found = names.find(token.text);
  if (!found || found->kind != NameKind::reg) {
    fail(token.line, "the predicate " + quoted(token.text) + " is not a declared register");
  }
  guard.predicate = found->unique;
  return guard;
}

void resolve(Operand& operand, const Names& names, std::size_t scope) {
  for (Operand& element : operand.elements) resolve(element, names, scope);
  if (operand.kind != Kind::label) return;
  if (auto found = names.find_label(operand.name, scope)) {
    operand.name = *std::move(found);
  } else if (operand.name.find('@') == std::string::npos) {
    operand.kind = Kind::symbol;
  }
}

}  // namespace

Instruction parse_instruction(Context& context, const Names& names) {
  TokenStream& tokens = context.tokens;
  Instruction instruction;
  instruction.line = tokens.line();
  context.charge<Instruction>(instruction.line);
  if (tokens.take_symbol_if("@")) instruction.guard = parse_guard(context, names);
  instruction.opcode =
      tokens.expect(TokenKind::word, "an instruction", "in the body of a function").text;
  while (tokens.peek().kind == TokenKind::dot_word) {
    if (instruction.modifiers.size() == limits::ptx_modifiers.most) {
      fail(tokens.line(), limits::beyond(limits::ptx_modifiers));
    }
    context.charge<std::string>(tokens.line());
    instruction.modifiers.emplace_back(tokens.take().text);
  }
  refuse_without_sync(context.module, instruction);
  if (!tokens.at_symbol(";")) {
    OperandReader reader(context, names, instruction);
    do {
      instruction.operands.push_back(reader.read());
    } while (tokens.take_symbol_if(","));
  }
  if (!tokens.take_symbol_if(";")) {
    tokens.fail_expected("';'", "after the operands of " + quoted(instruction.full_name()));
  }
  return instruction;
}

void resolve_labels(Instruction& instruction, const Names& names, std::size_t scope) {
  for (Operand& operand : instruction.operands) resolve(operand, names, scope);
  const bool branches = instruction.opcode == "bra" || instruction.opcode == "brx";
  if (!branches || instruction.operands.empty()) return;
  const Operand& target = instruction.operands.back();
  if (target.kind == Kind::symbol) {
    fail(instruction.line, "the label " + quoted(target.name) + " is not in this function");
  }
}

}  // namespace ctxbroker::software::ptx
