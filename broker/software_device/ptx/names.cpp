// SPDX-License-Identifier: Apache-2.0
#include "ptx/names.hpp"

#include <algorithm>
#include <charconv>

#include "ptx/token_stream.hpp"

namespace ctxbroker::software::ptx {

namespace {

std::string with_scope(const std::string& name, std::size_t scope) {
  return scope == 0 ? name : name + "@" + std::to_string(scope);
}

}  // namespace

void Names::open(std::uint32_t line) {
  const std::size_t depth = scopes_[current_].depth + 1;
  check_nesting(depth, line);
  scopes_.push_back({.parent = current_, .depth = depth});
  current_ = scopes_.size() - 1;
}

std::string Names::declare(const std::string& name, NameKind kind, std::uint32_t line) {
  Scope& scope = scopes_[current_];
  std::string unique = with_scope(name, current_);
  const bool fresh = scope.names.try_emplace(name, Resolved{kind, unique}).second;
  if (!fresh) fail(line, quoted(name) + " is declared twice in the same scope");
  return unique;
}

std::string Names::declare_range(const std::string& prefix, std::uint32_t count,
                                 std::uint32_t line) {
  // The second "@" keeps register 3 of scope 2's "%r<9>" apart from a register "%r" of scope 23.
  std::string unique = current_ == 0 ? prefix : with_scope(prefix, current_) + "@";
  const bool fresh = scopes_[current_].ranges.try_emplace(prefix, Range{count, unique}).second;
  if (!fresh) fail(line, quoted(prefix + "<...>") + " is declared twice in the same scope");
  return unique;
}

std::optional<Resolved> Names::find_in(const Scope& scope, const std::string& name) {
  if (const auto found = scope.names.find(name); found != scope.names.end()) return found->second;
  if (scope.ranges.empty()) return std::nullopt;
  // "%r12" is number 12 of "%r<N>", or number 2 of "%r1<N>".
  constexpr std::size_t most_digits = 7;  // of the largest register_range
  const std::size_t first = name.size() - std::min(name.size(), most_digits);
  for (std::size_t split = name.size();
       split > std::max<std::size_t>(first, 1) && is_digit(name[split - 1]);) {
    --split;
    if (name[split] == '0' && split + 1 != name.size()) continue;
    const auto range = scope.ranges.find(name.substr(0, split));
    if (range == scope.ranges.end()) continue;
    std::uint32_t number = 0;
    const auto parsed = std::from_chars(name.data() + split, name.data() + name.size(), number);
    if (parsed.ec == std::errc() && number < range->second.count) {
      return Resolved{NameKind::reg, range->second.unique + name.substr(split)};
    }
  }
  return std::nullopt;
}

std::optional<Resolved> Names::find(std::string_view name, std::size_t scope) const {
  const std::string text(name);
  for (;;) {
    if (auto found = find_in(scopes_[scope], text)) return found;
    if (scope == 0) return std::nullopt;
    scope = scopes_[scope].parent;
  }
}

}  // namespace ctxbroker::software::ptx
