// SPDX-License-Identifier: Apache-2.0
#include "plugin/foreign_text.hpp"

#include <algorithm>
#include <cstring>

#include "text/tenant_name.hpp"

namespace ctxbroker::detail {
namespace {

bool is_continuation(unsigned char byte) noexcept {
  return (byte & 0xC0u) == 0x80u;
}

bool is_allowed_ascii(unsigned char byte) noexcept {
  return (byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t';
}

// Bytes of the character that starts at `at`; 0 when none does. Overlong forms, surrogates and
// values beyond U+10FFFF are none.
std::size_t character_bytes(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t offset) {
    return at + offset < text.size() ? static_cast<unsigned char>(text[at + offset]) : '\0';
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return is_allowed_ascii(first) ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return is_continuation(byte(1)) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char second = byte(1);
    const bool fits = is_continuation(second) && (first != 0xE0 || second >= 0xA0) &&
                      (first != 0xED || second <= 0x9F);
    return fits && is_continuation(byte(2)) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char second = byte(1);
    const bool fits = is_continuation(second) && (first != 0xF0 || second >= 0x90) &&
                      (first != 0xF4 || second <= 0x8F);
    return fits && is_continuation(byte(2)) && is_continuation(byte(3)) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_clean_text(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::optional<std::string> take_text(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::size_t length = strnlen(text, longest_text + 1);
  if (length > longest_text || !is_clean_text({text, length})) return std::nullopt;
  return std::string(text, length);
}

std::string take_message(const char* text, std::size_t most) {
  if (text == nullptr) return {};
  const std::string_view given(text, strnlen(text, most));
  std::string copy;
  for (std::size_t at = 0; at < given.size();) {
    const std::size_t bytes = character_bytes(given, at);
    copy += bytes == 0 ? std::string_view("?") : given.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
  return copy;
}

bool is_reverse_dns(std::string_view id) noexcept {
  return count_name_parts(id) >= 2;
}

bool is_parameter_id(std::string_view id) noexcept {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace ctxbroker::detail
