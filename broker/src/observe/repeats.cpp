// SPDX-License-Identifier: Apache-2.0
#include "observe/repeats.hpp"

#include <functional>
#include <new>

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t first_told = 3;
constexpr std::size_t most_kinds = 1024;  // the rest counts as one

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Numbers are left out, and addresses ("0x7f00") too.
std::string without_numbers(std::string_view text) {
  std::string kept;
  bool in_number = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    const bool begins = is_digit && (kept.empty() || !is_alphanumeric(kept.back()));
    in_number = (in_number || begins) && is_alphanumeric(c);
    if (!in_number) kept += c;
  }
  return kept;
}

}  // namespace

std::uint64_t Repeats::count(std::string_view function, std::string_view text) noexcept {
  try {
    const std::string kind = std::string(function) + ": " + without_numbers(text);
    std::size_t hash = std::hash<std::string>()(kind);
    const std::lock_guard lock(mutex_);
    if (counts_.size() >= most_kinds && counts_.count(hash) == 0) hash = 0;
    return ++counts_[hash];
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

bool is_told(std::uint64_t count) noexcept {
  if (count <= first_told) return true;
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

std::string repeats_text(std::uint64_t count) {
  if (count < first_told) return {};
  if (count == first_told) return " (from now on, only the 10th, 100th, ... of these is logged)";
  return " (" + std::to_string(count) + " times so far)";
}

}  // namespace ctxbroker::detail
