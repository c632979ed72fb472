// SPDX-License-Identifier: Apache-2.0
#include "exec/lower/outlined.hpp"

#include <algorithm>
#include <unordered_set>

#include "exec/lower/families.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

using Variables = std::vector<ptx::Variable>;

// Where a frame holds what is passed.
struct Layout {
  std::vector<std::uint64_t> parameters, results;
  std::uint64_t bytes = 8;

  bool operator==(const Layout&) const = default;
};

Layout layout_of(const Variables& results, const Variables& parameters) {
  Layout layout;
  const auto add = [&](const Variables& variables, std::vector<std::uint64_t>& offsets) {
    for (const ptx::Variable& variable : variables) {
      layout.bytes = round_up(layout.bytes, std::max<std::uint64_t>(variable.alignment, 1));
      offsets.push_back(layout.bytes);
      layout.bytes += variable.size_bytes();
    }
  };
  add(parameters, layout.parameters);
  add(results, layout.results);
  return layout;
}

Layout layout_of(const ptx::Function& function) {
  return layout_of(function.results, function.parameters);
}

struct Place {
  ValueId base = no_value;
  std::uint64_t offset = 0;
};

std::string access(std::string_view kind, std::uint64_t bytes) {
  return std::string(kind) + ".local.u" + std::to_string(bytes * 8) + ".v1";
}

void store(Builder& b, const Place& to, ValueId value, std::uint64_t bytes) {
  b.emit(access("st", bytes), no_value, {to.base, value}, static_cast<std::int64_t>(to.offset));
}

void load(Builder& b, ValueId to, const Place& from, std::uint64_t bytes) {
  b.emit(access("ld", bytes), to, {from.base}, static_cast<std::int64_t>(from.offset));
}

// In pieces as wide as both places are aligned: frames begin at multiples of 16.
void copy(Builder& b, Place to, Place from, std::uint64_t bytes) {
  std::uint64_t piece = 8;
  while ((to.offset | from.offset | bytes) % piece != 0) piece /= 2;
  for (std::uint64_t done = 0; done < bytes; done += piece) {
    const ValueId value = b.temp(static_cast<std::uint8_t>(std::max<std::uint64_t>(piece, 2)));
    load(b, value, {from.base, from.offset + done}, piece);
    store(b, {to.base, to.offset + done}, value, piece);
  }
}

// The caller's .param variable in memory; none if a value holds it.
Place place_of(Builder& b, const Symbol& symbol) {
  if (symbol.kind == Symbol::Kind::local) return {b.literal(8, 0), symbol.offset};
  if (symbol.kind == Symbol::Kind::frame) return {b.frame(), symbol.offset};
  b.fail("a call passes what is no parameter");
}

// Between an actual parameter and its place in the new frame.
void pass(Builder& b, const ptx::Variable& formal, const Operand& actual, const Place& place,
          bool is_result) {
  const std::uint64_t bytes = formal.size_bytes();
  if (actual.kind == Operand::Kind::symbol) {
    const Symbol symbol = b.symbol(actual.name);
    if (symbol.kind != Symbol::Kind::cell) {
      const Place own = place_of(b, symbol);
      return is_result ? copy(b, own, place, bytes) : copy(b, place, own, bytes);
    }
    if (b.width(symbol.value) != bytes) {
      b.fail("type mismatch: " + quoted(actual.name) + " has another size than the parameter");
    }
    return is_result ? load(b, symbol.value, place, bytes) : store(b, place, symbol.value, bytes);
  }
  if (formal.is_array || formal.vector != 1 || formal.type == Type::pred) b.unsupported();
  if (is_result) return load(b, b.destination(actual, formal.type), place, bytes);
  store(b, place, b.source(actual, formal.type), bytes);
}

// Emits a call: `jump` goes to one of the callees.
template <class Jump>
void emit_call(Builder& b, const Call& call, const Variables& results, const Variables& parameters,
               const std::vector<std::uint32_t>& callees, Jump jump) {
  if (call.arguments->size() != parameters.size() || call.results->size() != results.size()) {
    b.fail("the call of '" + call.function->name +
           "' passes another number of parameters than it has");
  }
  const Instruction& instruction = b.instruction();
  const LabelId over = b.add_label();
  b.skip_unless_guard(over);
  const auto new_frame = [&] {
    if (b.in_kernel()) return b.frame_bytes();
    const ValueId sum = b.temp(8);
    b.emit("add.b64", sum, {b.frame(), b.frame_bytes()});
    return sum;
  };
  const Layout layout = layout_of(results, parameters);
  const ValueId frame = new_frame();
  b.emit("stack.check", no_value, {frame}, static_cast<std::int64_t>(layout.bytes));
  const std::uint32_t site = b.add_site(callees);
  if (!b.in_kernel()) b.save_values(site);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    pass(b, parameters[i], (*call.arguments)[i], {frame, layout.parameters[i]}, false);
  }
  store(b, {frame, 0}, b.literal(8, site), 8);
  b.move(b.frame(), frame);
  jump();
  b.place_site(site);
  if (!b.in_kernel()) {
    b.emit("sub.b64", b.frame(), {b.frame(), b.frame_bytes()});
    b.load_values(site);
  }
  const ValueId old_frame = results.empty() ? no_value : new_frame();
  for (std::size_t i = 0; i < results.size(); ++i) {
    pass(b, results[i], (*call.results)[i], {old_frame, layout.results[i]}, true);
  }
  b.place_label(over);
  b.begin(instruction);
}

const ptx::Function& function_named(Builder& b, const std::string& name) {
  const auto found = b.names().functions.find(name);
  if (found == b.names().functions.end()) b.fail("unknown function " + quoted(name));
  return *found->second;
}

}  // namespace

void call_outlined(Builder& b, const ptx::Function& function, const Call& call) {
  const std::uint32_t callee = b.outlined(function);
  emit_call(b, call, function.results, function.parameters, {callee}, [&] { b.jump_to(callee); });
}

// Every function whose address is taken anywhere in the module, and that takes and gives what the
// call does, may be the one.
void call_through_pointer(Builder& b, const Call& call) {
  if (call.signature == nullptr) b.fail("a call through a pointer needs a prototype or targets");
  const std::string& name = call.signature->name;
  const Scope& own = b.scope();
  const auto prototype = own.prototypes.find(name);
  const auto table = own.tables.find(name);
  std::unordered_set<const ptx::Function*> named;
  const Variables *results = nullptr, *parameters = nullptr;
  if (prototype != own.prototypes.end()) {
    results = &prototype->second->results;
    parameters = &prototype->second->parameters;
  } else if (table != own.tables.end()) {
    const std::vector<std::string>& targets = table->second->targets;
    b.spend(targets.size());
    for (const std::string& target : targets) named.insert(&function_named(b, target));
    const ptx::Function& first = function_named(b, targets.front());
    results = &first.results;
    parameters = &first.parameters;
  } else {
    b.fail("unknown prototype or table of targets " + quoted(name));
  }
  const Layout layout = layout_of(*results, *parameters);
  std::vector<std::uint32_t> by_address, callees;
  for (const ptx::Function* function : b.names().by_address) {
    b.spend(function == nullptr ? 1 : 1 + function->parameters.size() + function->results.size());
    const bool fits = function != nullptr && layout_of(*function) == layout &&
                      (named.empty() || named.contains(function));
    by_address.push_back(fits ? b.outlined(*function) : 0);
    if (fits) callees.push_back(by_address.back());
  }
  const ValueId address = b.source(*call.function, Type::b64);
  emit_call(b, call, *results, *parameters, callees, [&] {
    const ValueId index = b.temp(8);
    b.emit("function.index", index, {address, b.literal(8, b.names().first_address)});
    b.jump_to_one(index, address, by_address);
  });
}

void return_from_outlined(Builder& b) {
  const Instruction& instruction = b.instruction();
  const LabelId over = b.add_label();
  b.skip_unless_guard(over);
  const ptx::Function& function = *b.scope().function;
  const Layout layout = layout_of(function);
  for (std::size_t i = 0; i < function.results.size(); ++i) {
    const ptx::Variable& result = function.results[i];
    if (result.space != Space::reg) continue;
    store(b, {b.frame(), layout.results[i]}, b.register_named(result.name), result.size_bytes());
  }
  const ValueId site = b.temp(8);
  load(b, site, {b.frame(), 0}, 8);
  b.jump_back(site);
  b.place_label(over);
  b.begin(instruction);
}

void lower_outlined(Builder& b) {
  for (std::uint32_t number = 1; const ptx::Function* function = b.begin_outlined(number);
       ++number) {
    Scope scope;
    scope.function = function;
    b.enter(scope);
    Instruction edge;
    edge.line = function->line;
    edge.opcode = "ret";
    b.begin(edge);
    const Layout layout = layout_of(*function);
    b.add_local(layout.bytes, 1);
    b.check_frame();
    const auto declare = [&](const Variables& variables, const std::vector<std::uint64_t>& offsets,
                             bool has_value) {
      for (std::size_t i = 0; i < variables.size(); ++i) {
        const ptx::Variable& variable = variables[i];
        if (variable.space != Space::reg) {
          scope.symbols[variable.name] = {.kind = Symbol::Kind::frame,
                                          .offset = offsets[i],
                                          .element = element_bytes(variable)};
          continue;
        }
        const ValueId value = b.add_value(register_width(variable.type), false);
        scope.registers[variable.name] = value;
        if (has_value) load(b, value, {b.frame(), offsets[i]}, variable.size_bytes());
      }
    };
    declare(function->parameters, layout.parameters, true);
    declare(function->results, layout.results, false);
    lower_body(b);
    b.begin(edge);  // running off the end is a return
    lower_instruction(b);
  }
}

// --- numbers of functions and places ---------------------------------------------------------

std::uint32_t Builder::outlined(const ptx::Function& function) {
  const auto [place, fresh] =
      outlined_numbers_.try_emplace(&function, static_cast<std::uint32_t>(outlined_.size() + 1));
  if (fresh) {
    outlined_.push_back({&function, add_label(), static_cast<std::uint32_t>(tables_.size())});
    tables_.emplace_back();
    frame_bytes_.push_back(0);
  }
  return place->second;
}

const ptx::Function* Builder::begin_outlined(std::uint32_t number) {
  if (number > outlined_.size()) return nullptr;
  owner_ = number;
  place_label(outlined_[number - 1].entry);
  return outlined_[number - 1].function;
}

ValueId Builder::frame() {
  if (frame_ == no_value) frame_ = add_value(8, false);
  return frame_;
}

ValueId Builder::frame_bytes() {
  return preset({.origin = Origin::literal, .width = 8, .index = first_frame_index + owner_});
}

void Builder::check_frame() {
  frame_checks_.emplace_back(steps_.size(), owner_);
  emit("stack.check", no_value, {frame()});
}

std::uint32_t Builder::add_site(const std::vector<std::uint32_t>& callees) {
  const auto site = static_cast<std::uint32_t>(sites_.size());
  sites_.push_back(add_label());
  for (const std::uint32_t callee : callees) {
    std::vector<LabelId>& table = tables_[outlined_[callee - 1].returns];
    spend(site + 1 - table.size());
    table.resize(site + 1, no_target);
    table[site] = sites_[site];
  }
  return site;
}

void Builder::save_values(std::uint32_t site) {
  saved_.push_back({owner_, site, steps_.size(), 0});
  emit("stack.save", no_value, {frame()});
}

void Builder::load_values(std::uint32_t site) {
  const auto saved = std::find_if(saved_.rbegin(), saved_.rend(),
                                  [&](const Saved& each) { return each.site == site; });
  saved->load = steps_.size();
  emit_extra("stack.load", no_value, {frame()}, {}, true);
}

void Builder::jump_to_one(ValueId index, ValueId address,
                          const std::vector<std::uint32_t>& callees) {
  emit("jump", no_value, {index, address}, static_cast<std::int64_t>(tables_.size()));
  std::vector<LabelId>& table = tables_.emplace_back();
  for (const std::uint32_t callee : callees) {
    table.push_back(callee == 0 ? no_target : outlined_[callee - 1].entry);
  }
}

void Builder::jump_back(ValueId site) {
  emit("jump", no_value, {site, site}, static_cast<std::int64_t>(outlined_[owner_ - 1].returns));
}

}  // namespace ctxbroker::software::exec::lower
