// SPDX-License-Identifier: Apache-2.0
#include "ptx/constant.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <string>

namespace ctxbroker::software::ptx {

namespace {

constexpr std::uint64_t warp_size = 32;

struct Value {
  std::uint64_t bits = 0;
  bool is_unsigned = false;
  bool is_floating = false;
  bool is_f32 = false;  // of a floating value: bits are those of an f32
};

std::int64_t as_signed(std::uint64_t bits) noexcept {
  return static_cast<std::int64_t>(bits);
}

std::uint64_t parse_digits(const Token& token, std::string_view digits, int base) {
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, base);
  if (parsed.ec == std::errc::result_out_of_range) {
    fail(token.line, quoted(token.text) + " does not fit 64 bits");
  }
  if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    fail(token.line, quoted(token.text) + " is not a number");
  }
  return value;
}

// "0f3F800000" and "0d3FF0000000000000" give the bits themselves.
Value parse_float_bits(const Token& token, bool is_f32) {
  const std::string_view digits = token.text.substr(2);
  if (digits.size() != (is_f32 ? 8U : 16U)) {
    fail(token.line, quoted(token.text) + " needs " + (is_f32 ? "8" : "16") +
                         " hexadecimal digits after " + quoted(token.text.substr(0, 2)));
  }
  return {parse_digits(token, digits, 16), false, true, is_f32};
}

Value parse_number(const Token& token) {
  std::string_view text = token.text;
  const char mark = text.size() > 1 && text[0] == '0' ? text[1] : '\0';
  if (mark == 'f' || mark == 'F') return parse_float_bits(token, true);
  if (mark == 'd' || mark == 'D') return parse_float_bits(token, false);
  const bool hexadecimal = mark == 'x' || mark == 'X';
  if (!hexadecimal && text.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      fail(token.line, quoted(text) + " is not a floating-point number that an f64 holds");
    }
    return {std::bit_cast<std::uint64_t>(value), false, true, false};
  }
  const bool marked = text.back() == 'U';
  if (marked) text.remove_suffix(1);
  std::uint64_t value = 0;
  if (hexadecimal) {
    value = parse_digits(token, text.substr(2), 16);
  } else if (mark == 'b' || mark == 'B') {
    value = parse_digits(token, text.substr(2), 2);
  } else {
    value = parse_digits(token, text, mark != '\0' && text.size() > 1 ? 8 : 10);
  }
  const bool large = value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return {value, marked || large, false, false};
}

// --- expressions, by precedence climbing -----------------------------------------------------

struct Binary {
  std::string_view symbol;
  int precedence;  // higher binds closer
};
constexpr std::array<Binary, 18> binaries = {{{"||", 1},
                                              {"&&", 2},
                                              {"|", 3},
                                              {"^", 4},
                                              {"&", 5},
                                              {"==", 6},
                                              {"!=", 6},
                                              {"<", 7},
                                              {">", 7},
                                              {"<=", 7},
                                              {">=", 7},
                                              {"<<", 8},
                                              {">>", 8},
                                              {"+", 9},
                                              {"-", 9},
                                              {"*", 10},
                                              {"/", 10},
                                              {"%", 10}}};

constexpr int sum_precedence = 9;

void refuse_floating(const Value& value, std::uint32_t line) {
  if (value.is_floating) fail(line, "arithmetic on floating-point constants is not supported");
}

std::uint64_t divide(const Value& a, const Value& b, bool want_rest, std::uint32_t line) {
  if (b.bits == 0) fail(line, "division by zero in a constant expression");
  if (a.is_unsigned || b.is_unsigned) return want_rest ? a.bits % b.bits : a.bits / b.bits;
  if (as_signed(b.bits) == -1) return want_rest ? 0 : 0 - a.bits;
  const std::int64_t x = as_signed(a.bits), y = as_signed(b.bits);
  return static_cast<std::uint64_t>(want_rest ? x % y : x / y);
}

bool is_less(const Value& a, const Value& b) noexcept {
  if (a.is_unsigned || b.is_unsigned) return a.bits < b.bits;
  return as_signed(a.bits) < as_signed(b.bits);
}

std::uint64_t shift_right(const Value& a, std::uint64_t by) noexcept {
  if (a.is_unsigned) return by > 63 ? 0 : a.bits >> by;
  return static_cast<std::uint64_t>(as_signed(a.bits) >> (by > 63 ? 63 : by));
}

Value apply(std::string_view symbol, const Value& a, const Value& b, std::uint32_t line) {
  refuse_floating(a, line);
  refuse_floating(b, line);
  const bool either = a.is_unsigned || b.is_unsigned;
  const auto boolean = [](bool value) { return Value{value ? 1U : 0U, false, false, false}; };
  const auto integer = [&](std::uint64_t bits) { return Value{bits, either, false, false}; };
  if (symbol == "||") return boolean(a.bits != 0 || b.bits != 0);
  if (symbol == "&&") return boolean(a.bits != 0 && b.bits != 0);
  if (symbol == "==") return boolean(a.bits == b.bits);
  if (symbol == "!=") return boolean(a.bits != b.bits);
  if (symbol == "<") return boolean(is_less(a, b));
  if (symbol == ">") return boolean(is_less(b, a));
  if (symbol == "<=") return boolean(!is_less(b, a));
  if (symbol == ">=") return boolean(!is_less(a, b));
  if (symbol == "|") return integer(a.bits | b.bits);
  if (symbol == "^") return integer(a.bits ^ b.bits);
  if (symbol == "&") return integer(a.bits & b.bits);
  if (symbol == "+") return integer(a.bits + b.bits);
  if (symbol == "-") return integer(a.bits - b.bits);
  if (symbol == "*") return integer(a.bits * b.bits);
  if (symbol == "<<") return {b.bits > 63 ? 0 : a.bits << b.bits, a.is_unsigned, false, false};
  if (symbol == ">>") return {shift_right(a, b.bits), a.is_unsigned, false, false};
  return integer(divide(a, b, symbol == "%", line));
}

Value negate(const Value& value) noexcept {
  if (!value.is_floating) return {0 - value.bits, value.is_unsigned, false, false};
  const std::uint64_t sign = value.is_f32 ? std::uint64_t{1} << 31 : std::uint64_t{1} << 63;
  return {value.bits ^ sign, false, true, value.is_f32};
}

Value parse_ternary(TokenStream& tokens, std::size_t depth);

Value parse_parenthesis(TokenStream& tokens, std::size_t depth) {
  if (tokens.at_dot_word("s64") || tokens.at_dot_word("u64")) {  // a cast
    const bool is_unsigned = tokens.take().text == "u64";
    tokens.expect_symbol(")", "after the type of a cast");
    return {is_unsigned ? 1U : 0U, is_unsigned, false, false};
  }
  const Value value = parse_ternary(tokens, depth);
  tokens.expect_symbol(")", "at the end of a constant expression");
  return value;
}

Value parse_unary(TokenStream& tokens, std::size_t depth) {
  check_nesting(depth, tokens.line());
  const Token token = tokens.take();
  if (token.kind == TokenKind::number) return parse_number(token);
  if (token.kind == TokenKind::word && token.text == "WARP_SZ") {
    return {warp_size, false, false, false};
  }
  if (token.kind != TokenKind::symbol || std::string_view("-+~!(").find(token.text) > 4) {
    fail(token.line,
         "expected a constant, found " +
             (token.kind == TokenKind::end ? "the end of the text" : quoted(token.text)));
  }
  if (token.text == "(") {
    const bool cast = tokens.at_dot_word("s64") || tokens.at_dot_word("u64");
    const Value inside = parse_parenthesis(tokens, depth + 1);
    if (!cast) return inside;
    const Value value = parse_unary(tokens, depth + 1);
    refuse_floating(value, token.line);
    return {value.bits, inside.is_unsigned, false, false};
  }
  const Value value = parse_unary(tokens, depth + 1);
  if (token.text == "-") return negate(value);
  if (token.text == "+") return value;
  refuse_floating(value, token.line);
  if (token.text == "~") return {~value.bits, value.is_unsigned, false, false};
  return {value.bits == 0 ? 1U : 0U, false, false, false};
}

Value parse_binary(TokenStream& tokens, int least_precedence, std::size_t depth) {
  Value left = parse_unary(tokens, depth);
  for (;;) {
    const Binary* found = nullptr;
    for (const Binary& binary : binaries) {
      if (tokens.at_symbol(binary.symbol)) found = &binary;
    }
    if (found == nullptr || found->precedence < least_precedence) return left;
    const std::uint32_t line = tokens.take().line;
    const Value right = parse_binary(tokens, found->precedence + 1, depth + 1);
    left = apply(found->symbol, left, right, line);
  }
}

Value parse_ternary(TokenStream& tokens, std::size_t depth) {
  const Value condition = parse_binary(tokens, 1, depth);
  if (!tokens.at_symbol("?")) return condition;
  const std::uint32_t line = tokens.take().line;
  refuse_floating(condition, line);
  const Value yes = parse_ternary(tokens, depth + 1);
  tokens.expect_symbol(":", "in a conditional constant expression");
  const Value no = parse_ternary(tokens, depth + 1);
  return condition.bits != 0 ? yes : no;
}

}  // namespace

bool at_constant(const TokenStream& tokens) noexcept {
  const Token& next = tokens.peek();
  if (next.kind == TokenKind::number) return true;
  if (next.kind == TokenKind::word) return next.text == "WARP_SZ";
  return next.kind == TokenKind::symbol &&
         std::string_view("-+~(").find(next.text) != std::string_view::npos;
}

Operand parse_constant(TokenStream& tokens) {
  const Value value = parse_ternary(tokens, 0);
  Operand operand;
  operand.kind = value.is_floating ? Operand::Kind::floating : Operand::Kind::integer;
  operand.is_f32 = value.is_f32;
  (value.is_floating ? operand.floating_bits : operand.integer) = value.bits;
  return operand;
}

std::uint64_t parse_integer(TokenStream& tokens, std::uint64_t least, std::uint64_t most,
                            std::string_view what) {
  const std::uint32_t line = tokens.line();
  // Only sums and products: the ">" after "%r<4>" is no comparison.
  const Value value = parse_binary(tokens, sum_precedence, 0);
  if (value.is_floating) fail(line, std::string(what) + " must be an integer");
  if (value.bits < least || value.bits > most) {
    fail(line, std::string(what) + " must be between " + std::to_string(least) + " and " +
                   std::to_string(most) + ", not " + std::to_string(as_signed(value.bits)));
  }
  return value.bits;
}

std::int64_t parse_offset(TokenStream& tokens) {
  std::uint64_t sum = 0;
  while (tokens.at_symbol("+") || tokens.at_symbol("-")) {
    const Token sign = tokens.take();
    const Value value = parse_binary(tokens, sum_precedence + 1, 0);
    refuse_floating(value, sign.line);
    sum = sign.text == "-" ? sum - value.bits : sum + value.bits;
  }
  return as_signed(sum);
}

}  // namespace ctxbroker::software::ptx
