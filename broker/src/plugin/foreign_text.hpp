// SPDX-License-Identifier: Apache-2.0
// Checks and copies text that a plug-in library hands over.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ctxbroker::detail {

// The longest text that is taken from a plug-in, in bytes.
inline constexpr std::size_t longest_text = 4096;

// Returns whether the text is well-formed UTF-8 without control characters other than line ends and
// tabs.
bool is_clean_text(std::string_view text) noexcept;

// Returns a copy, or nothing when `text` is null, too long or not clean.
std::optional<std::string> take_text(const char* text);

// Returns a copy for text that is only shown. Bytes that are not clean become '?', null becomes an
// empty text, and a text of more than `most` bytes is cut.
std::string take_message(const char* text, std::size_t most = longest_text);

// Returns whether the id has at least two parts of letters, digits, '_' and '-', with '.' between
// them.
bool is_reverse_dns(std::string_view id) noexcept;

// Returns whether the id matches [a-z0-9_]+.
bool is_parameter_id(std::string_view id) noexcept;

}  // namespace ctxbroker::detail
