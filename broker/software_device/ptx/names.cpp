// SPDX-License-Identifier: Apache-2.0
#include "ptx/names.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

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
  scopes_.push_back({.parent = current_, .depth = depth, .first_declared = declared_.size()});
  current_ = scopes_.size() - 1;
}

void Names::close() {
  const Scope& scope = scopes_[current_];
  for (std::size_t i = scope.first_declared; i < declared_.size(); ++i) declared_[i]->pop_back();
  declared_.resize(scope.first_declared);
  current_ = scope.parent;
}

std::string Names::declare_in(Table& table, const std::string& name, Declared declared,
                              const std::string& shown, std::uint32_t line) {
  Declarations& declarations = table[name];
  if (!declarations.empty() && declarations.back().scope == current_) {
    fail(line, quoted(shown) + " is declared twice in the same scope");
  }
  declared.scope = current_;
  declarations.push_back(std::move(declared));
  declared_.push_back(&declarations);
  return declarations.back().unique;
}

std::string Names::declare(const std::string& name, NameKind kind, std::uint32_t line) {
  std::string unique =
      declare_in(names_, name, {.kind = kind, .unique = with_scope(name, current_)}, name, line);
  if (kind == NameKind::label) labels_[name].insert(current_);
  return unique;
}

std::string Names::declare_range(const std::string& prefix, std::uint32_t count,
                                 std::uint32_t line) {
  // The second "@" keeps register 3 of scope 2's "%r<9>" apart from a register "%r" of scope 23.
  std::string unique = current_ == 0 ? prefix : with_scope(prefix, current_) + "@";
  return declare_in(ranges_, prefix, {.count = count, .unique = std::move(unique)},
                    prefix + "<...>", line);
}

// A name is meant rather than a range of the same scope.
std::optional<Resolved> Names::find(std::string_view name) const {
  const std::string text(name);
  const Declared* innermost = nullptr;
  if (const auto found = names_.find(text); found != names_.end() && !found->second.empty()) {
    innermost = &found->second.back();
  }
  if (ranges_.empty()) {
    return innermost == nullptr ? std::nullopt
                                : std::optional(Resolved{innermost->kind, innermost->unique});
  }
  // "%r12" is number 12 of "%r<N>", or number 2 of "%r1<N>".
  std::size_t digits_at = text.size();
  constexpr std::size_t most_digits = 7;  // of the largest register_range
  const std::size_t first = text.size() - std::min(text.size(), most_digits);
  for (std::size_t split = text.size();
       split > std::max<std::size_t>(first, 1) && is_digit(text[split - 1]);) {
    --split;
    if (text[split] == '0' && split + 1 != text.size()) continue;
    const auto range = ranges_.find(text.substr(0, split));
    if (range == ranges_.end()) continue;
    std::uint32_t number = 0;
    std::from_chars(text.data() + split, text.data() + text.size(), number);
    const Declarations& declarations = range->second;
    const auto holds = std::find_if(declarations.rbegin(), declarations.rend(),
                                    [&](const Declared& one) { return number < one.count; });
    if (holds == declarations.rend()) continue;
    if (innermost != nullptr && innermost->scope >= holds->scope) continue;
    innermost = &*holds;
    digits_at = split;
  }
  if (innermost == nullptr) return std::nullopt;
  return Resolved{innermost->kind, innermost->unique + text.substr(digits_at)};
}

std::optional<std::string> Names::find_label(const std::string& name, std::size_t scope) const {
  const auto found = labels_.find(name);
  if (found == labels_.end()) return std::nullopt;
  for (;; scope = scopes_[scope].parent) {
    if (found->second.contains(scope)) return with_scope(name, scope);
    if (scope == 0) return std::nullopt;
  }
}

}  // namespace ctxbroker::software::ptx
