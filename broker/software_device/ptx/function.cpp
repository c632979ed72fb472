// SPDX-License-Identifier: Apache-2.0
#include "ptx/function.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "ptx/constant.hpp"
#include "ptx/declaration.hpp"
#include "ptx/instruction.hpp"
#include "ptx/names.hpp"

namespace ctxbroker::software::ptx {

namespace {

// --- the header ------------------------------------------------------------------------------

struct Directive {
  std::string_view name;
  unsigned least, most;  // how many integers follow
};
constexpr std::array<Directive, 16> directives = {{{"maxntid", 1, 3},
                                                   {"reqntid", 1, 3},
                                                   {"minnctapersm", 1, 1},
                                                   {"maxnctapersm", 1, 1},
                                                   {"maxnreg", 1, 1},
                                                   {"noreturn", 0, 0},
                                                   {"explicitcluster", 0, 0},
                                                   {"reqnctapercluster", 1, 3},
                                                   {"maxclusterrank", 1, 1},
                                                   {"maxnctapercluster", 1, 3},
                                                   {"blocksareclusters", 0, 0},
                                                   {"abi_preserve", 1, 1},
                                                   {"abi_preserve_control", 1, 1},
                                                   {"noinline", 0, 0},
                                                   {"unique", 0, 0},
                                                   {"language", 0, 0}}};

std::vector<std::uint32_t> parse_numbers(Context& context, const Directive& directive) {
  std::vector<std::uint32_t> numbers;
  if (directive.most == 0) return numbers;
  const std::string what = "the number after " + quoted_directive(directive.name);
  do {
    if (numbers.size() == directive.most) {
      context.tokens.fail_expected("no more numbers", "after " + quoted_directive(directive.name));
    }
    const std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    numbers.push_back(static_cast<std::uint32_t>(parse_integer(context.tokens, 0, most, what)));
  } while (context.tokens.take_symbol_if(","));
  return numbers;
}

void apply_directive(Function& function, std::string_view name, std::vector<std::uint32_t> numbers,
                     std::uint32_t line) {
  if (name == "maxnreg") function.max_registers = numbers.front();
  if (name != "maxntid" && name != "reqntid") return;
  numbers.resize(3, 1);
  if (name == "reqntid") {
    std::copy(numbers.begin(), numbers.end(), std::begin(function.required_threads));
    return;
  }
  std::uint64_t product = 1;
  for (const std::uint32_t number : numbers) {
    product *= number;
    if (product > std::numeric_limits<std::uint32_t>::max()) {
      fail(line, "'.maxntid' allows more threads than a block can have");
    }
  }
  function.max_threads = static_cast<std::uint32_t>(product);
}

// What stands between the parameters and the body.
void parse_directives(Context& context, Function& function) {
  TokenStream& tokens = context.tokens;
  while (tokens.peek().kind == TokenKind::dot_word) {
    if (read_debug_directive(context)) continue;
    const Token word = tokens.take();
    const auto* found =
        std::find_if(directives.begin(), directives.end(),
                     [&](const Directive& directive) { return directive.name == word.text; });
    if (found == directives.end()) {
      fail(word.line, quoted_directive(word.text) + " is not a directive of a function");
    }
    const auto numbers = parse_numbers(context, *found);
    apply_directive(function, found->name, numbers, word.line);
  }
}

// --- the body --------------------------------------------------------------------------------

class BodyReader {
 public:
  BodyReader(Context& context, Function& function)
      : context_(context), tokens_(context.tokens), function_(function) {}

  void read() {
    declare(function_.results);
    declare(function_.parameters);
    const std::uint32_t begin = tokens_.line();
    tokens_.expect_symbol("{", "at the start of a function");
    context_.module.sources.add(begin, {});  // until its first .loc
    for (;;) {
      if (tokens_.peek().kind == TokenKind::end) {
        fail(tokens_.line(), "the text ends inside of " + quoted(function_.name) +
                                 ", whose body begins in line " + std::to_string(begin));
      }
      if (tokens_.at_symbol("}") && names_.is_outermost()) break;
      read_statement();
    }
    tokens_.take();
    for (std::size_t i = 0; i < function_.body.size(); ++i) {
      resolve_labels(function_.body[i], names_, instruction_scopes_[i]);
    }
    resolve_tables();
  }

 private:
  void read_statement() {
    if (tokens_.at_symbol("{")) {
      context_.budget.memory.spend(Names::bytes_of_scope, tokens_.line());
      names_.open(tokens_.take().line);
    } else if (tokens_.take_symbol_if("}")) {
      names_.close();
    } else if (tokens_.take_symbol_if(";")) {
      // An empty statement.
    } else if (tokens_.peek().kind == TokenKind::dot_word) {
      read_directive();
    } else if (tokens_.peek().kind == TokenKind::word &&
               tokens_.peek_second().kind == TokenKind::symbol &&
               tokens_.peek_second().text == ":") {
      read_label();
    } else {
      function_.body.push_back(parse_instruction(context_, names_));
      instruction_scopes_.push_back(names_.current());
    }
  }

  void read_directive() {
    if (read_debug_directive(context_)) return;
    const Token word = tokens_.take();
    const Space space = space_of(word.text);
    if (space == Space::none) {
      fail(word.line, quoted_directive(word.text) + " has no meaning in a function");
    }
    std::vector<Variable> variables = parse_variables(context_, space, false);
    declare(variables);
    auto& target = space == Space::reg ? function_.registers : function_.variables;
    std::move(variables.begin(), variables.end(), std::back_inserter(target));
  }

  // Registers among parameters and results are declared by them alone.
  void declare(std::vector<Variable>& variables) {
    for (Variable& variable : variables) {
      if (variable.name == "_") continue;
      context_.budget.memory.spend(Names::bytes_of_name, variable.line);
      if (variable.register_count != 0) {
        variable.name = names_.declare_range(variable.name, variable.register_count, variable.line);
      } else {
        const auto kind = variable.space == Space::reg ? NameKind::reg : NameKind::variable;
        variable.name = names_.declare(variable.name, kind, variable.line);
      }
    }
  }

  void read_label() {
    const Token token = tokens_.take();
    tokens_.take();  // ":"
    context_.charge<Label>(token.line);
    context_.budget.memory.spend(2 * Names::bytes_of_name, token.line);
    std::string name = names_.declare(std::string(token.text), NameKind::label, token.line);
    if (tokens_.at_dot_word("callprototype")) {
      read_prototype(std::move(name));
    } else if (tokens_.at_dot_word("branchtargets") || tokens_.at_dot_word("calltargets")) {
      read_table(std::move(name));
    } else {
      function_.labels.push_back({std::move(name), function_.body.size()});
    }
  }

  // .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _) .noreturn;
  void read_prototype(std::string name) {
    tokens_.take();
    context_.charge<CallPrototype>(tokens_.line());
    CallPrototype prototype;
    prototype.name = std::move(name);
    if (tokens_.at_symbol("(")) prototype.results = parse_parameters(context_);
    tokens_.expect(TokenKind::word, "'_'", "in a call prototype");
    if (tokens_.at_symbol("(")) prototype.parameters = parse_parameters(context_);
    Function ignored;
    parse_directives(context_, ignored);
    tokens_.expect_symbol(";", "after a call prototype");
    function_.prototypes.push_back(std::move(prototype));
  }

  void read_table(std::string name) {
    const bool branches = tokens_.take().text == "branchtargets";
    BranchTable table;
    table.name = std::move(name);
    do {
      const Token target = tokens_.expect(TokenKind::word, "a name", "in a table of targets");
      context_.charge<PendingTarget>(target.line);
      table.targets.emplace_back(target.text);
      if (branches)
        pending_.push_back({function_.branch_tables.size(), table.targets.size() - 1,
                            names_.current(), target.line});
    } while (tokens_.take_symbol_if(","));
    tokens_.expect_symbol(";", "after a table of targets");
    function_.branch_tables.push_back(std::move(table));
  }

  void resolve_tables() {
    for (const PendingTarget& pending : pending_) {
      std::string& target = function_.branch_tables[pending.table].targets[pending.entry];
      auto found = names_.find_label(target, pending.scope);
      if (!found) fail(pending.line, "the label " + quoted(target) + " is not in this function");
      target = *std::move(found);
    }
  }

  struct PendingTarget {
    std::size_t table, entry, scope;
    std::uint32_t line;
  };

  Context& context_;
  TokenStream& tokens_;
  Function& function_;
  Names names_ = {};
  std::vector<std::size_t> instruction_scopes_ = {};
  std::vector<PendingTarget> pending_ = {};
};

// ".section .debug_info { ... }"
void skip_section(Context& context) {
  TokenStream& tokens = context.tokens;
  const std::uint32_t line = tokens.line();
  while (!tokens.at_symbol("{")) {
    if (tokens.take().kind == TokenKind::end) fail(line, "a section without '{ }'");
  }
  std::size_t depth = 0;
  do {
    const Token token = tokens.take();
    if (token.kind == TokenKind::end) fail(line, "this section never ends");
    if (token.kind != TokenKind::symbol) continue;
    if (token.text == "{") ++depth;
    if (token.text == "}") --depth;
  } while (depth > 0);
}

// A position of which nothing depends: what is no such number counts as 0.
std::uint32_t take_number(TokenStream& tokens) {
  if (tokens.peek().kind != TokenKind::number) return 0;
  const std::string_view text = tokens.take().text;
  std::uint32_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? value : 0;
}

// "1 20 3": file, line, column.
SourcePosition read_position(TokenStream& tokens) {
  SourcePosition position;
  position.file = take_number(tokens);
  position.line = take_number(tokens);
  while (tokens.peek().kind == TokenKind::number) tokens.take();
  return position;
}

// ".loc 1 20 3, function_name $L__info_string0+4, inlined_at 1 30 7": no semicolon ends it.
void read_location(Context& context) {
  TokenStream& tokens = context.tokens;
  const std::uint32_t line = tokens.line();
  const SourcePosition position = read_position(tokens);
  SourcePosition inlined_at;
  while (tokens.take_symbol_if(",")) {
    const Token word = tokens.expect(TokenKind::word, "an attribute", "in '.loc'");
    if (word.text == "function_name") {
      tokens.expect(TokenKind::word, "a name", "in '.loc'");
      parse_offset(tokens);
    }
    const SourcePosition named = read_position(tokens);
    if (word.text == "inlined_at") inlined_at = named;
  }
  context.charge<SourcePosition>(line, 3);
  context.module.sources.add(line, position, inlined_at);
}

// ".file 1 "/src/blur.cu", 1700000000, 812".
void read_file(Context& context) {
  TokenStream& tokens = context.tokens;
  if (tokens.peek().kind != TokenKind::number) tokens.fail_expected("a number", "after '.file'");
  const std::uint32_t number = take_number(tokens);
  const Token name = tokens.expect(TokenKind::string, "a name", "after '.file'");
  context.budget.memory.spend(SourceMap::bytes_of_file + name.text.size(), name.line);
  context.module.sources.name_file(number, std::string(name.text));
  while (tokens.take_symbol_if(",")) tokens.expect(TokenKind::number, "a number", "in '.file'");
}

}  // namespace

bool read_debug_directive(Context& context) {
  TokenStream& tokens = context.tokens;
  if (tokens.peek().kind != TokenKind::dot_word) return false;
  const std::string_view word = tokens.peek().text;
  if (word == "section") {
    tokens.take();
    skip_section(context);
  } else if (word == "loc") {
    tokens.take();
    read_location(context);
  } else if (word == "file") {
    tokens.take();
    read_file(context);
  } else if (word == "pragma") {
    tokens.take();
    do {
      tokens.expect(TokenKind::string, "a string", "after '.pragma'");
    } while (tokens.take_symbol_if(","));
    tokens.expect_symbol(";", "after '.pragma'");
  } else {
    return false;
  }
  return true;
}

void add_function(Context& context, Function function) {
  const auto [place, fresh] =
      context.function_index.try_emplace(function.name, context.module.functions.size());
  if (fresh) {
    context.module.functions.push_back(std::move(function));
    return;
  }
  Function& earlier = context.module.functions[place->second];
  if (function.is_declaration) return;
  // What is visible in its declaration stays so, whatever the definition leaves out.
  const bool says_nothing = function.linkage == Linkage::local;
  if (says_nothing && earlier.linkage != Linkage::external) function.linkage = earlier.linkage;
  if (!earlier.is_declaration) {
    fail(function.line, quoted(function.name) +
                            " is defined twice; the first definition is in line " +
                            std::to_string(earlier.line));
  }
  earlier = std::move(function);
}

void parse_function(Context& context, bool is_entry, Linkage linkage) {
  TokenStream& tokens = context.tokens;
  const std::uint64_t before = context.budget.memory.taken() + tokens.position();
  context.charge<Function>(tokens.line());
  Function function;
  function.is_entry = is_entry;
  function.linkage = linkage;
  while (tokens.at_dot_word("attribute")) {
    tokens.take();
    skip_parenthesis(context, "after '.attribute'");
  }
  if (!is_entry && tokens.at_symbol("(")) function.results = parse_parameters(context);
  const Token name = tokens.expect(TokenKind::word, "a name", "of a function");
  function.line = name.line;
  function.name = name.text;
  if (tokens.at_symbol("(")) function.parameters = parse_parameters(context);
  parse_directives(context, function);
  if (tokens.take_symbol_if(";")) {
    function.is_declaration = true;
  } else if (linkage == Linkage::external) {
    tokens.fail_expected("';'", "after an .extern function");
  } else {
    BodyReader(context, function).read();
  }
  function.memory = context.budget.memory.taken() + tokens.position() - before;
  add_function(context, std::move(function));
}

}  // namespace ctxbroker::software::ptx
