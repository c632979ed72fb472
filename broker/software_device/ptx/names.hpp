// SPDX-License-Identifier: Apache-2.0
// The names of one function: nested { } scopes made flat. Internal to ptx/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ctxbroker::software::ptx {

enum class NameKind : std::uint8_t { reg, variable, label };

struct Resolved {
  NameKind kind = NameKind::reg;
  std::string unique;  // the name as the module holds it
};

// A scope's number stays valid after it is closed, so that a label may be looked up from where it
// was named before it was declared. A function's outermost scope has number 0; names in it stay as
// they are, names in inner ones get "@" and the scope's number.
class Names {
 public:
  // Throws SyntaxError when scopes are nested too deeply.
  void open(std::uint32_t line);
  void close() { current_ = scopes_[current_].parent; }
  std::size_t current() const noexcept { return current_; }
  bool is_outermost() const noexcept { return current_ == 0; }

  // Throws SyntaxError when the scope has the name already. Returns the unique name; for a range
  // ("%r" of "%r<12>") the unique beginning to which the number is appended.
  std::string declare(const std::string& name, NameKind kind, std::uint32_t line);
  std::string declare_range(const std::string& prefix, std::uint32_t count, std::uint32_t line);

  // Looks in the scope and in those around it.
  std::optional<Resolved> find(std::string_view name, std::size_t scope) const;

 private:
  struct Range {
    std::uint32_t count = 0;
    std::string unique;
  };
  struct Scope {
    std::size_t parent = 0;
    std::size_t depth = 0;
    std::unordered_map<std::string, Resolved> names = {};
    std::unordered_map<std::string, Range> ranges = {};
  };

  static std::optional<Resolved> find_in(const Scope& scope, const std::string& name);

  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  std::size_t current_ = 0;
};

}  // namespace ctxbroker::software::ptx
