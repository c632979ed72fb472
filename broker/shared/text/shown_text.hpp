// SPDX-License-Identifier: Apache-2.0
// Somebody else's text, as messages and terminals show it.
#pragma once

#include <string>
#include <string_view>

namespace ctxbroker::detail {

// Returns the text with control characters written as "\x1b", so that they do nothing to a
// terminal and a zero ends nothing. Keeps the ends of lines and tabs, which logs have.
inline std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= ' ' && byte != 0x7f) || c == '\n' || c == '\t') {
      result += c;
    } else {
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return result;
}

// Returns the text in quotation marks, printable and shortened, so that what follows in the message
// is still read. A character of several bytes is not cut in two.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 250;
  if (text.size() <= longest) return "\"" + printable(text) + "\"";
  std::size_t end = longest;
  while (end > longest - 4 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return "\"" + printable(text.substr(0, end)) + "...\" (" + std::to_string(text.size()) +
         " bytes)";
}

}  // namespace ctxbroker::detail
