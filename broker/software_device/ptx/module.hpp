// SPDX-License-Identifier: Apache-2.0
// A PTX module as text says it: declarations and instructions with their operands, nothing yet
// checked against what an instruction means. parser.hpp makes one, exec/lower.hpp reads it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/source_map.hpp"

namespace ctxbroker::software::ptx {

enum class Space : std::uint8_t { none, reg, param, local, shared, constant, global };

// Whom a name of the module is for: this module alone, all that it is linked with, the same where
// one of several equal definitions is taken (weak, common), or defined by another module.
enum class Linkage : std::uint8_t { local, visible, weak, common, external };

enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
};

// "9.0"; what is no such number is 0.
struct Version {
  int major = 0, minor = 0;

  auto operator<=>(const Version&) const = default;  // NOLINT(modernize-use-nullptr)
};
Version version_of(std::string_view text) noexcept;

// Bytes of one element; pred counts as 1.
std::uint32_t size_of(Type type) noexcept;

// One operand. Which members count follows from `kind`.
struct Operand {
  enum class Kind : std::uint8_t {
    reg,       // name: "%r1", "%tid.x", "%SP"; a negated predicate source has negated = true
    integer,   // integer (two's complement of a signed literal)
    floating,  // bits of an f64 (floating_bits) or, after "0f", of an f32 (is_f32 = true)
    symbol,    // name, plus offset: "smem+16", a variable, function or parameter as a value; as an
               // initial value, integer != 0 is a mask: only that byte of the address is stored.
               // "name[3]", "name[%r1+3]": is_indexed, offset counts elements, and index is the
               // register, if there is one
    address,   // [base + offset]: base is name (register or symbol) or empty for [123]; elements
               // holds what follows a comma inside the brackets (texture coordinates)
    vector,    // elements: {%f1, %f2}
    label,     // name of a branch target, of a BranchTable or of a CallPrototype
    list,      // elements in parentheses: a call's arguments or results
    sink,      // "_"
    reg_pair,  // "%p1|%p2" (setp): elements holds both
  };
  Kind kind = Kind::reg;
  bool negated = false;  // "!%p1"; of vmad "-%r1"
  bool is_f32 = false;
  bool is_indexed = false;
  std::string name = {};
  std::string index = {};
  std::int64_t offset = 0;
  std::uint64_t integer = 0;
  std::uint64_t floating_bits = 0;
  std::vector<Operand> elements = {};
};

struct Guard {
  std::string predicate;  // register's name
  bool negated = false;
};

struct Instruction {
  std::uint32_t line = 0;              // in the PTX text, from 1
  std::string opcode;                  // "add", "ld", "bar"
  std::vector<std::string> modifiers;  // after the opcode, in order: {"rn", "f32"}
  std::optional<Guard> guard;
  std::vector<Operand> operands;  // in text order: destination first

  std::string full_name() const;  // "add.rn.f32"
};

// A variable, parameter or register range. Names inside nested { } scopes are made unique by the
// parser ("name@2"), so that a function's names are flat.
struct Variable {
  std::uint32_t line = 0;
  std::string name;
  Space space = Space::none;
  Type type = Type::none;
  std::uint32_t vector = 1;     // 2 or 4 for .v2 and .v4
  std::uint32_t alignment = 0;  // bytes; never 0 after parsing
  std::uint64_t count = 1;      // elements of an array (all dimensions); 1 for a scalar
  bool is_array = false;
  bool is_extern = false;             // extern .shared name[]: dynamic shared memory, count is 0;
                                      // extern .global: defined in another module
  Linkage linkage = Linkage::local;   // of a module's variable
  std::uint32_t register_count = 0;   // Space::reg, "%r<12>": 12 (names are `name` and a number
                                      // below it); 0: the one register `name`
  std::vector<Operand> initial = {};  // flat list of integer, floating or symbol operands; symbol
                                      // with negated = true means generic(symbol). May be
                                      // shorter than the variable: the rest is zeros
  std::uint64_t size_bytes() const;
};

struct Label {
  std::string name;
  std::size_t instruction = 0;  // index of the first instruction after it
};

// "name: .branchtargets l0, l1;" (for brx.idx) or "name: .calltargets f, g;".
struct BranchTable {
  std::string name;
  std::vector<std::string> targets;
};

// "name: .callprototype (results) _ (parameters);": what an indirect call passes.
struct CallPrototype {
  std::string name;
  std::vector<Variable> results, parameters;
};

struct Function {
  std::uint32_t line = 0;
  std::string name;
  bool is_entry = false;
  bool is_declaration = false;  // no body
  Linkage linkage = Linkage::local;
  std::vector<Variable> results = {};
  std::vector<Variable> parameters = {};
  std::vector<Variable> registers = {};
  std::vector<Variable> variables = {};  // .local, .shared, .param in the body, any scope
  std::vector<Instruction> body = {};
  std::vector<Label> labels = {};
  std::vector<BranchTable> branch_tables = {};  // and call targets
  std::vector<CallPrototype> prototypes = {};
  std::optional<std::uint32_t> max_threads = {};          // product of .maxntid
  std::optional<std::uint32_t> required_threads[3] = {};  // .reqntid; all three or none
  std::optional<std::uint32_t> max_registers = {};        // .maxnreg
  std::uint64_t memory = 0;                               // bytes that it takes, about
};

struct Module {
  std::string version;  // "9.0"
  std::string target;   // "sm_75"
  std::uint32_t address_size = 64;
  std::vector<Variable> variables = {};  // .global, .const, module-level .shared; names are unique
  std::vector<Function> functions = {};  // names are unique: a definition replaces its declaration
  SourceMap sources = {};
};

// 75 of "sm_75", 90 of "sm_90a"; 0 of what names no such target.
unsigned target_of(const Module& module) noexcept;

}  // namespace ctxbroker::software::ptx
