// SPDX-License-Identifier: Apache-2.0
#include "plugin/base64.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace ctxbroker::detail {
namespace {

constexpr std::string_view digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// By character: its digit's value, or 64 for what is none.
constexpr std::array<std::uint8_t, 256> values = [] {
  std::array<std::uint8_t, 256> all{};
  all.fill(64);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    all[static_cast<unsigned char>(digits[i])] = static_cast<std::uint8_t>(i);
  }
  return all;
}();

}  // namespace

std::string to_base64(const std::vector<std::byte>& bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8U | (i < count ? std::to_integer<std::uint32_t>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? digits[group >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::size_t padding = 0;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    if (padding != 0) return std::nullopt;  // the end has come
    std::uint32_t group = 0;
    for (const char c : text.substr(at, 4)) {
      const std::uint32_t value = values[static_cast<unsigned char>(c)];
      const bool is_padding = c == '=';
      if (!is_padding && (value == 64 || padding != 0)) return std::nullopt;
      padding += is_padding ? 1 : 0;
      group = group << 6U | (is_padding ? 0U : value);
    }
    if (padding > 2) return std::nullopt;
    for (std::size_t i = 0; i < 3 - padding; ++i) {
      bytes.push_back(static_cast<std::byte>(group >> (16 - 8 * i) & 255U));
    }
    if ((group & ((1U << (8 * padding)) - 1)) != 0) return std::nullopt;  // bits of no byte
  }
  return bytes;
}

}  // namespace ctxbroker::detail
