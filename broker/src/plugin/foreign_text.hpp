// Text that a plug-in library hands over: bounded, checked, copied.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ctxbroker::detail {

// The longest text that is taken from a plug-in, in bytes.
inline constexpr std::size_t longest_text = 4096;

// True for well-formed UTF-8 without control characters (line ends and tabs are allowed).
bool is_clean_text(std::string_view text) noexcept;

// The copy; nothing when `text` is null, too long, or not clean.
std::optional<std::string> take_text(const char* text);

// The same for text that is only shown: what is not clean becomes '?', null becomes empty, too long
// is cut.
std::string take_message(const char* text);

// One or more parts of letters, digits, '_' and '-', with '.' between them; at least two parts.
bool is_reverse_dns(std::string_view id) noexcept;

// [a-z0-9_]+
bool is_parameter_id(std::string_view id) noexcept;

}  // namespace ctxbroker::detail
