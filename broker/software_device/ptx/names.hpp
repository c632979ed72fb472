// SPDX-License-Identifier: Apache-2.0
// The names of one function: nested { } scopes made flat. Internal to ptx/.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
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
//
// A look-up takes about the same time in every scope, however deep it lies and however many scopes
// declare the name.
class Names {
 public:
  // Bytes of memory that a scope and a declared name take, about.
  static constexpr std::uint64_t bytes_of_scope = 64, bytes_of_name = 192;

  // Throws SyntaxError when scopes are nested too deeply.
  void open(std::uint32_t line);
  void close();
  std::size_t current() const noexcept { return current_; }
  bool is_outermost() const noexcept { return current_ == 0; }

  // Throws SyntaxError when the scope has the name already. Returns the unique name; for a range
  // ("%r" of "%r<12>") the unique beginning to which the number is appended.
  std::string declare(const std::string& name, NameKind kind, std::uint32_t line);
  std::string declare_range(const std::string& prefix, std::uint32_t count, std::uint32_t line);

  // Looks in the current scope and in those around it, for what has been declared so far.
  std::optional<Resolved> find(std::string_view name) const;
  // Looks for a label in the scope and in those around it, when all labels have been declared.
  // Returns its unique name.
  std::optional<std::string> find_label(const std::string& name, std::size_t scope) const;

 private:
  struct Declared {
    std::size_t scope = 0;
    NameKind kind = NameKind::reg;
    std::uint32_t count = 0;  // of a range
    std::string unique;
  };
  using Declarations = std::vector<Declared>;  // in open scopes, the innermost last
  using Table = std::unordered_map<std::string, Declarations>;
  struct Scope {
    std::size_t parent = 0;
    std::size_t depth = 0;
    std::size_t first_declared = 0;  // in declared_
  };

  std::string declare_in(Table& table, const std::string& name, Declared declared,
                         const std::string& shown, std::uint32_t line);

  Table names_, ranges_;
  std::unordered_map<std::string, std::set<std::size_t>> labels_;  // scopes that declare them
  std::vector<Declarations*> declared_;  // in the open scopes, in order: where their names stand
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  std::size_t current_ = 0;
};

}  // namespace ctxbroker::software::ptx
