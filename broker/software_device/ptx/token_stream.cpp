// SPDX-License-Identifier: Apache-2.0
#include "ptx/token_stream.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "ptx/parser.hpp"

namespace ctxbroker::software::ptx {

namespace {

bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word_part(char c) noexcept {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

constexpr std::array<std::string_view, 8> two_character_symbols = {
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
constexpr std::string_view one_character_symbols = "{}()[]<>;,:=+-*/%!~&|^?@";

// The text without the zeros that end it in memory.
std::string_view without_ending(std::string_view text) noexcept {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  return text;
}

}  // namespace

void fail(std::uint32_t line, const std::string& message) {
  throw SyntaxError(line, message);
}

void Budget::refuse(std::uint32_t line) const {
  fail(line, limits::beyond(limit()));
}

void MemoryBudget::grow(std::uint64_t bytes, std::uint32_t line) {
  if (!share_.take(bytes)) fail(line, "the process has " + limits::beyond(limits::process_memory));
}

// Its destructor does nothing: programs may live until the process ends.
limits::SharedAllowance& process_memory() noexcept {
  static limits::SharedAllowance memory(limits::process_memory);
  return memory;
}

void check_nesting(std::size_t depth, std::uint32_t line) {
  if (depth > limits::ptx_nesting.most) fail(line, limits::beyond(limits::ptx_nesting));
}

std::string quoted_directive(std::string_view word) {
  std::string text = ".";
  return quoted(text.append(word));
}

std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 250;  // of what compilers make, most names are shorter
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > longest) result += "...";
  return result + "'";
}

TokenStream::TokenStream(std::string_view text, ModuleBudget& budget)
    : text_(without_ending(text)), budget_(budget) {
  budget_.text.spend(text_.size(), line_);
  budget_.memory.spend(text_.size(), line_);
  first_ = scan();
  second_ = scan();
}

Token TokenStream::take() {
  const Token taken = std::exchange(first_, second_);
  if (second_.kind != TokenKind::end) second_ = scan();
  return taken;
}

bool TokenStream::at_symbol(std::string_view symbol) const noexcept {
  return first_.kind == TokenKind::symbol && first_.text == symbol;
}

bool TokenStream::at_dot_word(std::string_view word) const noexcept {
  return first_.kind == TokenKind::dot_word && first_.text == word;
}

bool TokenStream::take_symbol_if(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  take();
  return true;
}

void TokenStream::expect_symbol(std::string_view symbol, std::string_view where) {
  if (!take_symbol_if(symbol)) fail_expected(quoted(symbol), where);
}

Token TokenStream::expect(TokenKind kind, std::string_view what, std::string_view where) {
  if (first_.kind != kind) fail_expected(what, where);
  return take();
}

void TokenStream::fail_expected(std::string_view what, std::string_view where) const {
  std::string found = "the end of the text";
  if (first_.kind != TokenKind::end) {
    found =
        first_.kind == TokenKind::dot_word ? quoted_directive(first_.text) : quoted(first_.text);
  }
  fail(first_.line,
       "expected " + std::string(what) + " " + std::string(where) + ", found " + found);
}

Token TokenStream::make(TokenKind kind, std::size_t begin, std::size_t end) const {
  if (end - begin > limits::ptx_word.most) fail(line_, limits::beyond(limits::ptx_word));
  return {kind, text_.substr(begin, end - begin), line_, false};
}

void TokenStream::skip_line() {
  position_ = std::min(text_.find('\n', position_), text_.size());
}

// Blanks, both kinds of comments, lines of the C preprocessor and of old debug sections.
void TokenStream::skip_blanks() {
  while (position_ < text_.size()) {
    const std::string_view rest = text_.substr(position_);
    if (is_blank(rest[0])) {
      if (rest[0] == '\n') ++line_;
      ++position_;
    } else if (rest.starts_with("//") || rest[0] == '#' || rest.starts_with("@@")) {
      skip_line();
    } else if (rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/", 2);
      if (end == std::string_view::npos) fail(line_, "this comment (/*) never ends");
      line_ += static_cast<std::uint32_t>(
          std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      position_ += end + 2;
    } else {
      return;
    }
  }
}

Token TokenStream::scan() {
  const std::size_t before = position_;
  skip_blanks();
  const std::size_t begin = position_;
  budget_.words.spend(1, line_);
  if (begin == text_.size()) return make(TokenKind::end, begin, begin);

  const auto at = [this](std::size_t index) { return index < text_.size() ? text_[index] : '\0'; };
  const auto end_of_word = [&](std::size_t index) {
    while (is_word_part(at(index))) ++index;
    return index;
  };
  const char c = text_[begin];
  Token token;
  if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_word_part(at(begin + 1)))) {
    position_ = end_of_word(begin + 1);
    token = make(TokenKind::word, begin, position_);
  } else if (c == '.' && is_word_part(at(begin + 1))) {
    position_ = end_of_word(begin + 1);
    while (at(position_) == ':' && at(position_ + 1) == ':' && is_word_part(at(position_ + 2))) {
      position_ = end_of_word(position_ + 2);
    }
    token = make(TokenKind::dot_word, begin + 1, position_);
  } else if (is_digit(c)) {
    position_ = end_of_word(begin);
    if (at(position_) == '.' && is_digit(at(position_ + 1))) position_ = end_of_word(position_ + 1);
    const char last = at(position_ - 1);
    const bool hexadecimal = at(begin + 1) == 'x' || at(begin + 1) == 'X';
    const bool bits = begin + 1 < position_ && is_letter(at(begin + 1)) &&
                      std::string_view("eE").find(at(begin + 1)) == std::string_view::npos;
    if (!hexadecimal && !bits && (last == 'e' || last == 'E') &&
        (at(position_) == '+' || at(position_) == '-') && is_digit(at(position_ + 1))) {
      position_ = end_of_word(position_ + 1);
    }
    token = make(TokenKind::number, begin, position_);
  } else if (c == '"') {
    const std::size_t end = text_.find_first_of("\"\n", begin + 1);
    if (end == std::string_view::npos || text_[end] == '\n') {
      fail(line_, "this string has no closing quotation mark");
    }
    position_ = end + 1;
    token = make(TokenKind::string, begin + 1, end);
  } else {
    const auto pair = text_.substr(begin, 2);
    const bool two = std::find(two_character_symbols.begin(), two_character_symbols.end(), pair) !=
                     two_character_symbols.end();
    if (!two && one_character_symbols.find(c) == std::string_view::npos) {
      fail(line_, "the byte " + std::to_string(static_cast<unsigned char>(c)) + " (" +
                      quoted(pair.substr(0, 1)) + ") begins nothing that PTX knows");
    }
    position_ = begin + (two ? 2 : 1);
    token = make(TokenKind::symbol, begin, position_);
  }
  token.joined = before == begin;
  return token;
}

}  // namespace ctxbroker::software::ptx
