// SPDX-License-Identifier: Apache-2.0
#include "ptx/parser.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ptx/constant.hpp"
#include "ptx/context.hpp"
#include "ptx/declaration.hpp"
#include "ptx/function.hpp"

namespace ctxbroker::software::ptx {

namespace {

void parse_version(Context& context) {
  const std::string_view where = "after '.version'";
  context.module.version = context.tokens.expect(TokenKind::number, "a number", where).text;
}

// ".target sm_90, debug": the options change nothing here.
void parse_target(Context& context) {
  TokenStream& tokens = context.tokens;
  const Token target = tokens.expect(TokenKind::word, "an architecture", "after '.target'");
  if (!target.text.starts_with("sm_") && !target.text.starts_with("compute_")) {
    fail(target.line, "the target must begin with 'sm_', not be " + quoted(target.text));
  }
  context.module.target = target.text;
  while (tokens.take_symbol_if(",")) tokens.expect(TokenKind::word, "an option", "in '.target'");
}

void parse_address_size(Context& context) {
  const std::uint32_t line = context.tokens.line();
  const auto size = parse_integer(context.tokens, 32, 64, "the address size");
  if (size != 64) fail(line, "only modules with 64-bit addresses can run; build with -m64");
  context.module.address_size = 64;
}

// ".alias name, target;": the target may be defined later.
void parse_alias(Context& context) {
  TokenStream& tokens = context.tokens;
  Alias alias;
  const Token name = tokens.expect(TokenKind::word, "a name", "after '.alias'");
  alias.line = name.line;
  alias.name = name.text;
  tokens.expect_symbol(",", "in '.alias'");
  alias.target = tokens.expect(TokenKind::word, "a name", "in '.alias'").text;
  tokens.expect_symbol(";", "after '.alias'");
  context.charge<Alias>(name.line);
  context.aliases.push_back(std::move(alias));
}

// An alias becomes a second function with the same body.
void add_aliases(Context& context) {
  for (const Alias& alias : context.aliases) {
    const auto found = context.function_index.find(alias.target);
    if (found == context.function_index.end() ||
        context.module.functions[found->second].is_declaration) {
      fail(alias.line, "the alias " + quoted(alias.name) + " names " + quoted(alias.target) +
                           ", which is not defined");
    }
    context.budget.memory.spend(context.module.functions[found->second].memory, alias.line);
    Function copy = context.module.functions[found->second];
    copy.name = alias.name;
    copy.line = alias.line;
    add_function(context, std::move(copy));
  }
}

void add_variable(Context& context, Variable variable) {
  const auto [place, fresh] =
      context.variable_index.try_emplace(variable.name, context.module.variables.size());
  if (fresh) {
    context.module.variables.push_back(std::move(variable));
    return;
  }
  Variable& earlier = context.module.variables[place->second];
  if (variable.is_extern) return;
  if (!earlier.is_extern) {
    fail(variable.line, quoted(variable.name) + " is declared twice; the first time in line " +
                            std::to_string(earlier.line));
  }
  earlier = std::move(variable);
}

// ".visible", ".extern", ".weak", ".common", or none.
Linkage take_linkage(TokenStream& tokens) {
  constexpr std::pair<std::string_view, Linkage> words[] = {{"visible", Linkage::visible},
                                                            {"weak", Linkage::weak},
                                                            {"common", Linkage::common},
                                                            {"extern", Linkage::external}};
  Linkage linkage = Linkage::local;
  for (;;) {
    const auto* found = std::find_if(std::begin(words), std::end(words), [&](const auto& word) {
      return tokens.at_dot_word(word.first);
    });
    if (found == std::end(words)) return linkage;
    tokens.take();
    if (linkage != Linkage::external) linkage = found->second;
  }
}

void parse_declaration(Context& context) {
  TokenStream& tokens = context.tokens;
  const Linkage linkage = take_linkage(tokens);
  const Token word = tokens.expect(TokenKind::dot_word, "a declaration", "in the module");
  if (word.text == "entry" || word.text == "func") {
    parse_function(context, word.text == "entry", linkage);
    return;
  }
  const Space space = space_of(word.text);
  if (space != Space::global && space != Space::constant && space != Space::shared) {
    fail(word.line, quoted_directive(word.text) + " has no meaning outside of a function");
  }
  for (Variable& variable : parse_variables(context, space, linkage == Linkage::external)) {
    variable.linkage = linkage;
    add_variable(context, std::move(variable));
  }
}

void parse_statement(Context& context) {
  TokenStream& tokens = context.tokens;
  if (read_debug_directive(context) || tokens.take_symbol_if(";")) return;
  if (tokens.peek().kind != TokenKind::dot_word) {
    tokens.fail_expected("a directive or declaration", "in the module");
  }
  using Parse = void (*)(Context&);
  constexpr std::pair<std::string_view, Parse> statements[] = {
      {"version", parse_version},
      {"target", parse_target},
      {"address_size", parse_address_size},
      {"alias", parse_alias},
  };
  for (const auto& [word, parse_it] : statements) {
    if (!tokens.at_dot_word(word)) continue;
    tokens.take();
    parse_it(context);
    return;
  }
  parse_declaration(context);
}

}  // namespace

Module parse(std::string_view text) {
  ModuleBudget budget;
  return parse(text, budget);
}

Module parse(std::string_view text, ModuleBudget& budget) {
  Context context(text, budget);
  while (context.tokens.peek().kind != TokenKind::end) parse_statement(context);
  const std::uint32_t line = context.tokens.line();
  if (context.module.version.empty()) fail(line, "the text is no PTX: '.version' is missing");
  if (context.module.target.empty()) fail(line, "the text is no PTX: '.target' is missing");
  add_aliases(context);
  return std::move(context.module);
}

}  // namespace ctxbroker::software::ptx
