// SPDX-License-Identifier: Apache-2.0
// PTX text as tokens, with two of them visible ahead. Internal to ptx/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ptx/budget.hpp"

namespace ctxbroker::software::ptx {

constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

enum class TokenKind : std::uint8_t {
  end,
  word,      // foo, %r1, $L__BB0_1, _
  dot_word,  // .f32, .shared::cta, .2d
  number,    // 12, 0x1F, 0f3F800000, 1.5
  string,    // "nounroll", without its quotes
  symbol,    // one or two characters: ; , { <<
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text = {};  // into the parsed text; for a dot_word without its dot
  std::uint32_t line = 0;
  bool joined = false;  // nothing stands between it and the token before
};

// Every function may throw SyntaxError: for a byte that begins no token, an unfinished comment or
// string, and where something else was expected.
class TokenStream {
 public:
  // Charges the text, and each token when it is read.
  TokenStream(std::string_view text, ModuleBudget& budget);

  const Token& peek() const noexcept { return first_; }
  const Token& peek_second() const noexcept { return second_; }
  Token take();

  bool at_symbol(std::string_view symbol) const noexcept;
  bool at_dot_word(std::string_view word) const noexcept;
  bool take_symbol_if(std::string_view symbol);

  // `where` completes "expected ';' ...": "after the operands of 'add.s32'".
  void expect_symbol(std::string_view symbol, std::string_view where);
  Token expect(TokenKind kind, std::string_view what, std::string_view where);

  std::uint32_t line() const noexcept { return first_.line; }
  std::size_t position() const noexcept { return position_; }  // bytes that were read

  // Throws SyntaxError: "expected WHAT WHERE, found 'TOKEN'".
  [[noreturn]] void fail_expected(std::string_view what, std::string_view where) const;

 private:
  Token scan();
  void skip_blanks();
  void skip_line();
  Token make(TokenKind kind, std::size_t begin, std::size_t end) const;

  std::string_view text_;
  ModuleBudget& budget_;
  std::size_t position_ = 0;
  std::uint32_t line_ = 1;
  Token first_ = {};
  Token second_ = {};
};

// Throws SyntaxError.
[[noreturn]] void fail(std::uint32_t line, const std::string& message);
void check_nesting(std::size_t depth, std::uint32_t line);

// In quotation marks, shortened, unprintable bytes as '?': any text may end up in a message.
std::string quoted(std::string_view text);

// The same with the dot that a dot_word's text lacks.
std::string quoted_directive(std::string_view word);

}  // namespace ctxbroker::software::ptx
