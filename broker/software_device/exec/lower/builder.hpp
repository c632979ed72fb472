// SPDX-License-Identifier: Apache-2.0
// Collects the steps of one kernel while its PTX is lowered, function by function (calls are
// expanded in place). The families of instructions, in the other files, write through it.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exec/code.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::software::exec::lower {

using ptx::Instruction;
using ptx::Operand;
using ptx::Space;
using ptx::Type;

using LabelId = std::uint32_t;

// What a variable's name means in a function body.
struct Symbol {
  enum class Kind : std::uint8_t {
    global,            // index of Program::globals
    shared,            // offset in static shared memory
    dynamic_shared,    // behind static shared memory
    local,             // offset in local memory
    frame,             // offset in the frame of a function that is not expanded in place
    kernel_parameter,  // offset in the parameter buffer
    cell,              // a parameter of an expanded call, held in a value
    function,          // its address
  };
  Kind kind = Kind::global;
  std::uint64_t offset = 0;   // or the index, or the address
  ValueId value = no_value;   // cell
  std::uint32_t element = 0;  // of an array: bytes that an index counts
};

// Of an array: bytes of one element (of a vector's components each is one); 0: it is no array.
std::uint32_t element_bytes(const ptx::Variable& variable);

// The module's target and its names, shared by all its kernels.
struct ModuleNames {
  unsigned target = 0;  // 75: sm_75
  std::unordered_map<std::string, Symbol> globals;
  std::unordered_map<std::string, const ptx::Variable*> shared;
  std::unordered_map<std::string, const ptx::Function*> functions;
  // Functions have addresses in the order of the module, from the first one's on.
  std::uint64_t first_address = 0;
  std::unordered_map<std::string, std::uint64_t> addresses;
  std::vector<const ptx::Function*> by_address;     // null: never called through a pointer
  std::unordered_set<const ptx::Function*> cyclic;  // may call themselves, over others or not
};

// A function body that is being lowered: the kernel's, or that of a call.
struct Scope {
  const ptx::Function* function = nullptr;
  std::unordered_map<std::string, ValueId> registers = {};  // those that were named so far
  // Declarations of registers: one by its name, "%r<12>" by the part before the number.
  std::unordered_map<std::string_view, const ptx::Variable*> declared = {}, ranges = {};
  std::unordered_map<std::string_view, const ptx::BranchTable*> tables = {};
  std::unordered_map<std::string_view, const ptx::CallPrototype*> prototypes = {};
  bool has_vectors = false;
  std::unordered_map<std::string, unsigned> definitions = {};  // per register: writing instructions
  std::unordered_map<std::string, Symbol> symbols = {};
  std::unordered_map<std::string, LabelId> labels = {};
  LabelId end = 0;  // where `ret` of an expanded call goes
  Scope* caller = nullptr;
};

// A name as messages show it, shortened.
std::string quoted(const std::string& name);
// The variable that declares the register. Null if the function has no such register.
const ptx::Variable* declaration_of(const Scope& scope, std::string_view name);
// The registers' width that holds a type: 1 for predicates, 2, 4 or 8 bytes; 0: none does.
std::uint8_t register_width(Type type) noexcept;

struct Flow;

// Literals whose bits are known when all steps are there have an index: of what lies behind static
// shared memory this one, of a frame's size the next ones, by the function's number.
inline constexpr std::uint32_t dynamic_shared_index = 1;
inline constexpr std::uint32_t first_frame_index = 2;

class Builder {
 public:
  // `line` is the kernel's.
  Builder(const ModuleNames& names, ptx::ModuleBudget& budget, std::uint32_t line)
      : names_(names), budget_(budget), line_(line) {}

  const ModuleNames& names() const { return names_; }
  Scope& scope() { return *scope_; }
  void enter(Scope& scope) { scope_ = &scope; }
  void leave() { scope_ = scope_->caller; }

  // Every step until the next call belongs to this instruction: its line, its guard.
  void begin(const Instruction& instruction);
  const Instruction& instruction() const { return *instruction_; }
  bool is_guarded() const { return guard_ != no_value; }

  // Charges the module's steps.
  void spend(std::uint64_t steps) const;

  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void unsupported() const;

  // Values.
  ValueId add_value(std::uint8_t width, bool temporary);
  ValueId temp(std::uint8_t width) { return add_value(width, true); }
  ValueId preset(const Preset& preset);
  ValueId literal(std::uint8_t width, std::uint64_t bits);
  ValueId dynamic_shared(std::uint8_t width, std::uint64_t addend);
  ValueId thread_value(ThreadValue which);
  ValueId block_value(BlockValue which);
  std::uint8_t width(ValueId value) const { return values_[value].width; }
  bool is_preset(ValueId value) const { return values_[value].preset; }
  // What a register stands for, where it is known to stand for a preset.
  ValueId resolved(ValueId value) const;

  // Operands. source() takes registers, special registers, constants and symbols of the type's
  // width; any_source() a register of any width, constants at `type`'s.
  ValueId source(const Operand& operand, Type type);
  ValueId any_source(const Operand& operand, Type type);
  ValueId predicate(const Operand& operand);
  ValueId destination(const Operand& operand, Type type);
  ValueId any_destination(const Operand& operand);  // no_value for "_"
  bool has_register(const std::string& name) { return find_register(name) != no_value; }
  bool is_register(const Operand& operand);
  ValueId register_named(const std::string& name);
  const Operand& operand(std::size_t index) const;
  void check_operands(std::size_t least, std::size_t most) const;
  void expect_constant_up_to(std::uint64_t most, const Operand& operand) const;  // if it is one
  const Symbol& symbol(const std::string& name);
  ValueId symbol_value(const Operand& operand, std::uint8_t width);

  // Steps. An operation that the engines do not have: the instruction is refused.
  Step& emit(std::string_view op, ValueId dst, std::initializer_list<ValueId> sources,
             std::int64_t immediate = 0);
  // A temporary that one step computes.
  ValueId computed(std::string_view op, std::uint8_t width, std::initializer_list<ValueId> sources);
  Step& emit_extra(std::string_view op, ValueId dst, std::initializer_list<ValueId> sources,
                   const std::vector<ValueId>& extra, bool extra_written);
  // dst becomes value: no step at all if dst is written nowhere else and value is a preset.
  void assign(const Operand& dst, ValueId to, ValueId value);
  void move(ValueId to, ValueId value);

  LabelId add_label();
  void place_label(LabelId label) { labels_[label] = static_cast<std::uint32_t>(steps_.size()); }
  LabelId label_named(const std::string& name) const;
  void branch(LabelId target);
  void branch_if(LabelId target, ValueId predicate);
  // If the instruction is guarded: branches where its guard does not hold. What the instruction
  // emits from then on is not guarded.
  void skip_unless_guard(LabelId over);

  // Calls that are not expanded in place: outlined.hpp. The kernel is function 0; a function has a
  // number from its first call on, and is lowered after the kernel.
  bool in_kernel() const { return owner_ == 0; }
  std::uint32_t outlined(const ptx::Function& function);      // its number
  const ptx::Function* begin_outlined(std::uint32_t number);  // null: there are not so many
  ValueId frame();        // where the frame of the running function begins, in local memory
  ValueId frame_bytes();  // of the current function
  void check_frame();
  // Where a call of these functions comes back to. The number is what it stores for them.
  std::uint32_t add_site(const std::vector<std::uint32_t>& callees);
  void place_site(std::uint32_t site) { place_label(sites_[site]); }
  void save_values(std::uint32_t site);
  void load_values(std::uint32_t site);
  void jump_to(std::uint32_t callee) { branch(outlined_[callee - 1].entry); }
  // One of the callees, by its place in the list: 0 stands for none.
  void jump_to_one(ValueId index, ValueId address, const std::vector<std::uint32_t>& callees);
  void jump_back(ValueId site);

  // Names the line of a declaration for errors before the first instruction.
  void declare_at(std::uint32_t line) { line_ = line; }
  std::uint64_t add_local(std::uint64_t size, std::uint64_t alignment);
  Symbol add_local_symbol(std::uint64_t size, std::uint64_t alignment);
  std::uint64_t add_shared(std::uint64_t size, std::uint64_t alignment);

  // Gives values their places and hands the code over.
  std::shared_ptr<Code> finish();

 private:
  struct Value {
    std::uint8_t width;
    bool temporary;
    bool preset;
    std::uint32_t owner;  // the function that was lowered when it was added
  };
  struct Outlined {
    const ptx::Function* function;
    LabelId entry;
    std::uint32_t returns;  // table of its return jumps
  };
  struct Saved {  // around a call in a function that may run more than once at a time
    std::uint32_t owner, site;
    std::size_t save, load;  // steps
  };
  using PresetKey =
      std::tuple<Origin, std::uint8_t, bool, std::uint8_t, std::uint32_t, std::uint64_t>;

  ValueId address_of(const Symbol& found, const Operand& operand, std::uint8_t width,
                     std::uint64_t addend);
  ValueId add_index(ValueId address, const std::string& index, std::uint32_t element);
  ValueId special(const std::string& name, Type type);
  ValueId constant(const Operand& operand, Type type);
  void check_width(ValueId value, std::uint8_t wanted, const Operand& operand) const;
  Step& add_step(const Op& op, ValueId dst);
  Flow make_flow();
  void resolve_labels();
  void fill_saved(Flow& flow);
  void fill_frames();
  std::uint64_t frame_size(std::uint32_t function) const;

  // The register's value, which is added when the name is first met; no_value: none is declared.
  ValueId find_register(const std::string& name);

  const ModuleNames& names_;
  ptx::ModuleBudget& budget_;
  std::uint32_t line_;  // of the function, or of what is declared before the first instruction
  Scope* scope_ = nullptr;
  std::uint32_t line() const { return instruction_ == nullptr ? line_ : instruction_->line; }

  const Instruction* instruction_ = nullptr;
  ValueId guard_ = no_value;
  bool guard_negated_ = false;

  std::vector<Value> values_;
  std::vector<ValueId> aliases_;  // by value; no_value: stands for itself
  std::vector<Preset> presets_;
  std::map<PresetKey, ValueId> preset_values_;
  std::unordered_map<std::string, std::uint64_t> placed_shared_;  // module-level, used here
  std::vector<Step> steps_;
  std::vector<ValueId> extra_;
  std::vector<bool> extra_written_;    // by step
  std::vector<std::uint32_t> labels_;  // by LabelId: step
  std::uint64_t shared_bytes_ = 0;

  std::uint32_t owner_ = 0;
  std::vector<std::uint64_t> frame_bytes_ = {0};  // by function
  std::vector<Outlined> outlined_;
  std::unordered_map<const ptx::Function*, std::uint32_t> outlined_numbers_;
  std::vector<LabelId> sites_;
  std::vector<std::vector<LabelId>> tables_;  // no_target: none
  std::vector<Saved> saved_;
  std::vector<std::pair<std::size_t, std::uint32_t>> frame_checks_;  // step and function
  ValueId frame_ = no_value;
};

}  // namespace ctxbroker::software::exec::lower
