// SPDX-License-Identifier: Apache-2.0
#include "ptx/declaration.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "ptx/constant.hpp"

namespace ctxbroker::software::ptx {

namespace {

// Beyond these a declaration makes no sense. They take no memory: registers have places from their
// first use on, and variables when the module is loaded.
constexpr std::uint32_t largest_register_range = 1U << 20;          // N of "%r<N>"
constexpr std::uint64_t largest_variable = std::uint64_t{1} << 40;  // bytes
constexpr std::uint32_t largest_alignment = 1U << 16;               // bytes

using NamedType = std::pair<std::string_view, Type>;
// Textures, surfaces and samplers are handles of 8 bytes.
constexpr std::array<NamedType, 24> types = {
    {{"pred", Type::pred},   {"b8", Type::b8},          {"b16", Type::b16},
     {"b32", Type::b32},     {"b64", Type::b64},        {"b128", Type::b128},
     {"u8", Type::u8},       {"u16", Type::u16},        {"u32", Type::u32},
     {"u64", Type::u64},     {"s8", Type::s8},          {"s16", Type::s16},
     {"s32", Type::s32},     {"s64", Type::s64},        {"f16", Type::f16},
     {"f16x2", Type::f16x2}, {"bf16", Type::bf16},      {"bf16x2", Type::bf16x2},
     {"f32", Type::f32},     {"f64", Type::f64},        {"texref", Type::b64},
     {"surfref", Type::b64}, {"samplerref", Type::b64}, {"tex", Type::b64}}};

constexpr std::array<std::pair<std::string_view, Space>, 7> spaces = {{{"reg", Space::reg},
                                                                       {"param", Space::param},
                                                                       {"local", Space::local},
                                                                       {"shared", Space::shared},
                                                                       {"const", Space::constant},
                                                                       {"global", Space::global},
                                                                       {"tex", Space::global}}};

// What stands before the names of a declaration: ".align 4 .v2 .f32".
struct Head {
  Space space = Space::none;
  Type type = Type::none;
  std::uint32_t vector = 1;
  std::uint32_t alignment = 0;
  bool is_extern = false;
};

std::uint32_t parse_alignment(Context& context) {
  const std::uint32_t line = context.tokens.line();
  const std::uint64_t value = parse_integer(context.tokens, 1, largest_alignment, "an alignment");
  if (!std::has_single_bit(value)) fail(line, "an alignment must be a power of two");
  return static_cast<std::uint32_t>(value);
}

// ".ptr .global .align 4": says what a parameter points to; it changes nothing here.
void skip_pointer_attributes(Context& context) {
  TokenStream& tokens = context.tokens;
  while (tokens.peek().kind == TokenKind::dot_word) {
    if (tokens.take().text == "align") parse_alignment(context);
  }
}

Head parse_head(Context& context, Space space, bool is_extern) {
  TokenStream& tokens = context.tokens;
  Head head{.space = space, .is_extern = is_extern};
  if (space == Space::constant && tokens.take_symbol_if("[")) {  // an old constant bank
    parse_integer(tokens, 0, 10, "a constant bank");
    tokens.expect_symbol("]", "after a constant bank");
  }
  while (tokens.peek().kind == TokenKind::dot_word) {
    const Token word = tokens.take();
    const auto* type = std::find_if(types.begin(), types.end(), [&](const NamedType& named) {
      return named.first == word.text;
    });
    if (type != types.end()) {
      if (head.type != Type::none) fail(word.line, "a declaration with two types");
      head.type = type->second;
    } else if (word.text == "align") {
      head.alignment = parse_alignment(context);
    } else if (word.text == "v2" || word.text == "v4") {
      head.vector = word.text == "v2" ? 2 : 4;
    } else if (word.text == "attribute") {
      skip_parenthesis(context, "after '.attribute'");
    } else if (word.text == "ptr" && space == Space::param) {
      skip_pointer_attributes(context);
    } else {
      fail(word.line,
           quoted_directive(word.text) + " is not a type or attribute of a " + "variable");
    }
  }
  if (head.type == Type::none) tokens.fail_expected("a type", "in a declaration");
  if (head.type == Type::pred && space != Space::reg) {
    fail(tokens.line(), "only registers can have the type .pred");
  }
  if (head.alignment == 0) head.alignment = size_of(head.type) * head.vector;
  return head;
}

// --- initial values --------------------------------------------------------------------------

// Elements of an array, with 0 for a first dimension without a number ("a[][4]").
using Dimensions = std::vector<std::uint64_t>;

std::optional<Operand> parse_symbol_value(Context& context) {
  TokenStream& tokens = context.tokens;
  if (tokens.peek().kind != TokenKind::word || tokens.peek().text == "WARP_SZ") {
    return std::nullopt;
  }
  Operand value;
  value.kind = Operand::Kind::symbol;
  value.name = tokens.take().text;
  if (value.name == "generic" && tokens.take_symbol_if("(")) {
    value.name = tokens.expect(TokenKind::word, "a name", "in generic( )").text;
    value.negated = true;
    value.offset = parse_offset(tokens);
    tokens.expect_symbol(")", "after the name in generic( )");
  }
  value.offset += parse_offset(tokens);
  return value;
}

Operand parse_initial_value(Context& context) {
  TokenStream& tokens = context.tokens;
  if (auto symbol = parse_symbol_value(context)) return *std::move(symbol);
  if (!at_constant(tokens) && !tokens.at_symbol("!")) {
    tokens.fail_expected("a value", "in an initialiser");
  }
  const std::uint32_t line = tokens.line();
  Operand value = parse_constant(tokens);
  if (!tokens.take_symbol_if("(")) return value;
  // 0xFF00(name): one byte of an address.
  auto symbol = parse_symbol_value(context);
  if (!symbol) tokens.fail_expected("a name", "after a mask in an initialiser");
  if (value.kind != Operand::Kind::integer || value.integer == 0) {
    fail(line, "the mask of an address must be an integer above 0");
  }
  tokens.expect_symbol(")", "after a masked address");
  symbol->integer = value.integer;
  return *std::move(symbol);
}

class InitialiserReader {
 public:
  InitialiserReader(Context& context, const Dimensions& dimensions, std::uint32_t vector)
      : context_(context), dimensions_(dimensions) {
    if (vector > 1) dimensions_.push_back(vector);
  }

  std::vector<Operand> read() {
    if (!context_.tokens.at_symbol("{")) {
      add(parse_initial_value(context_));
    } else {
      read_braces(0);
    }
    return std::move(values_);
  }

 private:
  void add(Operand value) {
    context_.charge<Operand>(context_.tokens.line());
    values_.push_back(std::move(value));
  }

  // How many values one brace at this level stands for; 0 when the level has no number.
  std::uint64_t values_at(std::size_t level) const {
    std::uint64_t product = 1;
    for (std::size_t i = level; i < dimensions_.size(); ++i) product *= dimensions_[i];
    return product;
  }

  void read_braces(std::size_t level) {
    TokenStream& tokens = context_.tokens;
    const std::uint32_t line = tokens.line();
    check_nesting(level, line);
    tokens.expect_symbol("{", "at the start of an initialiser");
    const std::size_t begin = values_.size();
    while (!tokens.at_symbol("}")) {
      if (tokens.at_symbol("{")) {
        read_braces(level + 1);
      } else {
        add(parse_initial_value(context_));
      }
      if (!tokens.take_symbol_if(",")) break;
      // An inner brace that says less than its row has: zeros up to the next row.
      if (level < dimensions_.size()) fill_row(level + 1);
    }
    tokens.expect_symbol("}", "at the end of an initialiser");
    const std::uint64_t most = values_at(level);
    const std::uint64_t found = values_.size() - begin;
    if (most != 0 && found > most) {
      fail(line,
           "an initialiser of " + std::to_string(found) + " values for " + std::to_string(most));
    }
    row_is_short_ = level > 0 && found < most;
    row_begin_ = begin;
  }

  void fill_row(std::size_t level) {
    if (!std::exchange(row_is_short_, false)) return;
    const std::uint64_t missing = values_at(level) - (values_.size() - row_begin_);
    context_.charge<Operand>(context_.tokens.line(), missing);
    Operand zero;
    zero.kind = Operand::Kind::integer;
    values_.insert(values_.end(), missing, zero);
  }

  Context& context_;
  Dimensions dimensions_;
  std::vector<Operand> values_ = {};
  std::size_t row_begin_ = 0;
  bool row_is_short_ = false;  // the brace that ended last has fewer values than its row
};

// --- one name --------------------------------------------------------------------------------

Dimensions parse_dimensions(Context& context) {
  TokenStream& tokens = context.tokens;
  Dimensions dimensions;
  while (tokens.take_symbol_if("[")) {
    if (dimensions.size() == limits::ptx_dimensions.most) {
      fail(tokens.line(), limits::beyond(limits::ptx_dimensions));
    }
    const bool unsized = tokens.at_symbol("]");
    if (unsized && !dimensions.empty()) {
      fail(tokens.line(), "only an array's first dimension can be left open");
    }
    dimensions.push_back(
        unsized ? 0 : parse_integer(tokens, 1, largest_variable, "an array's dimension"));
    tokens.expect_symbol("]", "after an array's dimension");
  }
  return dimensions;
}

void set_count(Variable& variable, const Dimensions& dimensions) {
  variable.is_array = !dimensions.empty();
  for (const std::uint64_t dimension : dimensions) {
    if (dimension == 0) {
      variable.count = 0;
      return;
    }
    if (variable.count > largest_variable / dimension) {
      fail(variable.line, quoted(variable.name) + " is larger than a variable can be");
    }
    variable.count *= dimension;
  }
  if (variable.count > largest_variable / size_of(variable.type) / variable.vector) {
    fail(variable.line, quoted(variable.name) + " is larger than a variable can be");
  }
}

// The number of rows of "a[][4] = {...}" follows from its values.
void set_open_count(Variable& variable, const Dimensions& dimensions) {
  std::uint64_t row = variable.vector;
  for (std::size_t i = 1; i < dimensions.size(); ++i) {
    if (row > largest_variable / dimensions[i]) {
      fail(variable.line, quoted(variable.name) + " is larger than a variable can be");
    }
    row *= dimensions[i];
  }
  variable.count = (variable.initial.size() + row - 1) / row * (row / variable.vector);
}

Variable begin_variable(Context& context, const Head& head, std::string_view where) {
  const Token name = context.tokens.expect(TokenKind::word, "a name", where);
  context.charge<Variable>(name.line);
  Variable variable;
  variable.line = name.line;
  variable.name = name.text;
  variable.space = head.space;
  variable.type = head.type;
  variable.vector = head.vector;
  variable.alignment = head.alignment;
  variable.is_extern = head.is_extern;
  return variable;
}

Variable parse_register(Context& context, const Head& head) {
  Variable variable = begin_variable(context, head, "in a register declaration");
  if (context.tokens.take_symbol_if("<")) {
    variable.register_count = static_cast<std::uint32_t>(
        parse_integer(context.tokens, 1, largest_register_range, "a number of registers"));
    context.tokens.expect_symbol(">", "after a number of registers");
  }
  return variable;
}

Variable parse_variable(Context& context, const Head& head) {
  if (head.space == Space::reg) return parse_register(context, head);
  Variable variable = begin_variable(context, head, "in a declaration");
  const Dimensions dimensions = parse_dimensions(context);
  set_count(variable, dimensions);
  if (context.tokens.take_symbol_if("=")) {
    if (head.space != Space::global && head.space != Space::constant) {
      fail(variable.line, "only .global and .const variables can have initial values");
    }
    if (head.is_extern) fail(variable.line, "an .extern variable cannot have initial values");
    variable.initial = InitialiserReader(context, dimensions, variable.vector).read();
    if (variable.count == 0) set_open_count(variable, dimensions);
    if (variable.initial.size() > variable.count * variable.vector) {
      fail(variable.line, "too many initial values for " + quoted(variable.name));
    }
  } else if (variable.count == 0 && !head.is_extern && head.space != Space::param) {
    fail(variable.line,
         quoted(variable.name) + " needs a size: only .extern arrays can do without");
  }
  return variable;
}

}  // namespace

Space space_of(std::string_view word) noexcept {
  for (const auto& [name, space] : spaces) {
    if (name == word) return space;
  }
  return Space::none;
}

void skip_parenthesis(Context& context, std::string_view where) {
  context.tokens.expect_symbol("(", where);
  for (std::size_t depth = 1; depth > 0;) {
    const Token token = context.tokens.take();
    if (token.kind == TokenKind::end) fail(token.line, "a parenthesis is never closed");
    if (token.kind != TokenKind::symbol) continue;
    if (token.text == "(") ++depth;
    if (token.text == ")") --depth;
  }
}

std::vector<Variable> parse_variables(Context& context, Space space, bool is_extern) {
  const Head head = parse_head(context, space, is_extern);
  std::vector<Variable> variables;
  do {
    variables.push_back(parse_variable(context, head));
  } while (context.tokens.take_symbol_if(","));
  context.tokens.expect_symbol(";", "after a declaration");
  return variables;
}

std::vector<Variable> parse_parameters(Context& context) {
  TokenStream& tokens = context.tokens;
  tokens.expect_symbol("(", "before parameters");
  std::vector<Variable> parameters;
  if (tokens.take_symbol_if(")")) return parameters;
  do {
    const Token word = tokens.expect(TokenKind::dot_word, "'.param' or '.reg'", "in parameters");
    const Space space = space_of(word.text);
    if (space != Space::param && space != Space::reg) {
      fail(word.line, "a parameter is .param or .reg, not " + quoted_directive(word.text));
    }
    parameters.push_back(parse_variable(context, parse_head(context, space, false)));
  } while (tokens.take_symbol_if(","));
  tokens.expect_symbol(")", "after parameters");
  return parameters;
}

}  // namespace ctxbroker::software::ptx
