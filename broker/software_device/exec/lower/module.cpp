// SPDX-License-Identifier: Apache-2.0
// A module: its variables, then its kernels.
#include <algorithm>
#include <bit>
#include <cstring>

#include "exec/lower/families.hpp"
#include "exec/lower/outlined.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software::exec {
namespace {

using lower::Symbol;
using ptx::Operand;
using ptx::Space;
using ptx::Type;

std::uint64_t initial_bits(const Operand& operand, Type type, std::uint32_t line) {
  if (operand.kind == Operand::Kind::integer) {
    if (type == Type::f32) {
      return std::bit_cast<std::uint32_t>(
          static_cast<float>(static_cast<std::int64_t>(operand.integer)));
    }
    if (type == Type::f64) {
      return std::bit_cast<std::uint64_t>(
          static_cast<double>(static_cast<std::int64_t>(operand.integer)));
    }
    return operand.integer;
  }
  if (operand.kind != Operand::Kind::floating) {
    throw ptx::SyntaxError(line, "an initial value is neither a number nor a name");
  }
  const double value = operand.is_f32
                           ? std::bit_cast<float>(static_cast<std::uint32_t>(operand.floating_bits))
                           : std::bit_cast<double>(operand.floating_bits);
  if (ptx::size_of(type) == 4) {
    return operand.is_f32 ? operand.floating_bits
                          : std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  return operand.is_f32 ? std::bit_cast<std::uint64_t>(value) : operand.floating_bits;
}

GlobalVariable global_variable(const ptx::Variable& variable) {
  if (variable.is_extern) {
    throw ptx::SyntaxError(variable.line, "'" + variable.name +
                                              "' is defined in another module, with which this one "
                                              "has to be linked (cuLinkAddData)");
  }
  GlobalVariable global;
  global.name = variable.name;
  global.size = variable.size_bytes();
  global.alignment = std::max<std::uint64_t>(variable.alignment, 1);
  global.constant = variable.space == Space::constant;
  if (variable.initial.empty()) return global;
  const std::uint32_t element = ptx::size_of(variable.type);
  if (variable.initial.size() * element > global.size) {
    throw ptx::SyntaxError(variable.line,
                           lower::quoted(variable.name) + " has too many initial values");
  }
  global.initial.resize(variable.initial.size() * element);
  for (std::size_t i = 0; i < variable.initial.size(); ++i) {
    const Operand& operand = variable.initial[i];
    if (operand.kind == Operand::Kind::symbol) {
      if (element != 8) {
        throw ptx::SyntaxError(variable.line,
                               "an address does not fit an element of '" + variable.name + "'");
      }
      global.relocations.push_back({i * element, operand.name, operand.offset});
      continue;
    }
    const std::uint64_t bits = initial_bits(operand, variable.type, variable.line);
    std::memcpy(global.initial.data() + i * element, &bits, std::min(element, 8U));
  }
  return global;
}

// The offsets of a kernel's parameters; true layout of the buffer that a launch passes.
void lay_out_parameters(const ptx::Function& function, Kernel& kernel, lower::Scope& scope) {
  std::uint64_t offset = 0;
  for (const ptx::Variable& parameter : function.parameters) {
    const std::uint64_t alignment = std::max<std::uint64_t>(parameter.alignment, 1);
    offset = round_up(offset, alignment);
    const std::uint64_t size = parameter.size_bytes();
    if (offset + size > 32764) {
      throw ptx::SyntaxError(
          parameter.line, "the parameters of '" + function.name + "' need more than 32764 bytes");
    }
    kernel.parameters.push_back({static_cast<std::uint32_t>(offset),
                                 static_cast<std::uint32_t>(size),
                                 static_cast<std::uint32_t>(alignment)});
    scope.symbols[parameter.name] = {.kind = Symbol::Kind::kernel_parameter,
                                     .offset = offset,
                                     .element = lower::element_bytes(parameter)};
    offset += size;
  }
  kernel.parameter_bytes = static_cast<std::uint32_t>(offset);
}

// As a driver would say it: 32-bit registers that are in use at the same time, in steps of 8.
std::uint32_t estimated_registers(const Code& code) {
  std::uint32_t bytes = 0;
  std::vector<bool> is_preset(code.lockstep_bytes / group_lanes + 1);
  for (const Preset& preset : code.presets) {
    is_preset[code.places[preset.value].lockstep / group_lanes] = true;
  }
  for (const Place& slot : code.slots) {
    if (!is_preset[slot.lockstep / group_lanes] && slot.width > 1) {
      bytes += std::max<std::uint32_t>(slot.width, 4);
    }
  }
  return std::clamp<std::uint32_t>(static_cast<std::uint32_t>(round_up(bytes / 4, 8)), 16, 255);
}

// A multiprocessor has 65,536 registers for the threads of a block, which get them in steps of 8.
std::uint32_t most_registers(const ptx::Function& function, std::uint32_t threads) {
  const bool bounded = function.max_threads || function.required_threads[0];
  const std::uint32_t by_threads =
      bounded ? 65536 / static_cast<std::uint32_t>(round_up(std::max(threads, 1U), 32)) / 8 * 8
              : 255;
  return std::min(by_threads, function.max_registers.value_or(255));
}

std::uint32_t most_threads(const ptx::Function& function) {
  constexpr std::uint32_t hardware = 1024;
  std::uint64_t threads = function.max_threads.value_or(hardware);
  if (function.required_threads[0]) {
    threads = 1;
    for (const auto& size : function.required_threads) threads *= size.value_or(1);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, hardware));
}

Kernel lower_kernel(const ptx::Function& function, const lower::ModuleNames& names,
                    ptx::ModuleBudget& budget) {
  Kernel kernel;
  kernel.name = function.name;
  lower::Scope scope;
  scope.function = &function;
  lay_out_parameters(function, kernel, scope);
  lower::Builder builder(names, budget, function.line);
  builder.enter(scope);
  lower::lower_body(builder);
  // Running off the end is an exit.
  ptx::Instruction last;
  last.line = function.body.empty() ? function.line : function.body.back().line;
  last.opcode = "exit";
  builder.begin(last);
  lower::lower_instruction(builder);
  lower::lower_outlined(builder);
  const std::shared_ptr<Code> code = builder.finish();
  kernel.static_shared_bytes = code->shared_variable_bytes;
  kernel.local_bytes = code->local_bytes;
  kernel.max_threads = most_threads(function);
  kernel.registers =
      std::min(estimated_registers(*code), most_registers(function, kernel.max_threads));
  kernel.target = names.target;
  kernel.uses_heap = code->uses_heap;
  kernel.code = code;
  return kernel;
}

// Initial values that are addresses: of another variable in global or constant memory.
void check_addresses(const ptx::Variable& variable, const lower::ModuleNames& names) {
  for (const Operand& value : variable.initial) {
    if (value.kind != Operand::Kind::symbol || names.globals.contains(value.name) ||
        names.addresses.contains(value.name)) {
      continue;
    }
    const std::string what =
        "the initial value of '" + variable.name + "' is the address of '" + value.name + "'";
    if (names.functions.contains(value.name)) {
      throw ptx::SyntaxError(variable.line, what + ", a function that is not defined: the module " +
                                                "has to be linked with the one that defines it");
    }
    throw ptx::SyntaxError(variable.line, what + ", which is no variable in global memory");
  }
}

// Functions' addresses are known here; those of variables only when the module is placed.
void place_functions(GlobalVariable& variable, const lower::ModuleNames& names) {
  std::erase_if(variable.relocations, [&](const Relocation& relocation) {
    const auto found = names.addresses.find(relocation.symbol);
    if (found == names.addresses.end() || names.globals.contains(relocation.symbol)) return false;
    const std::uint64_t address = found->second + static_cast<std::uint64_t>(relocation.addend);
    std::memcpy(variable.initial.data() + relocation.offset, &address, sizeof(address));
    return true;
  });
}

std::uint32_t constant_bytes(const std::vector<GlobalVariable>& globals) {
  std::uint64_t bytes = 0;
  for (const GlobalVariable& global : globals) {
    if (global.constant) bytes = round_up(bytes, global.alignment) + global.size;
  }
  return static_cast<std::uint32_t>(bytes);
}

std::uint64_t bytes_of(const Code& code) {
  std::uint64_t bytes = sizeof(Code) + code.steps.size() * sizeof(Step) +
                        code.extra.size() * sizeof(ValueId) +
                        (code.places.size() + code.slots.size()) * sizeof(Place) +
                        code.presets.size() * sizeof(Preset);
  for (const auto& table : code.tables) {
    bytes += sizeof(decltype(code.tables)::value_type) + table.size() * sizeof(table.front());
  }
  if (code.rows != nullptr) {
    bytes += code.rows->rows.size() * sizeof(Rows::Row) + bytes_of(code.rows->addresses) +
             bytes_of(code.rows->body);
  }
  return bytes;
}

// Bytes that a loaded module takes for its function, or for the memory block of its variable.
constexpr std::uint64_t bytes_of_function = 512, bytes_of_block = 1024;

std::uint64_t bytes_of(const Kernel& kernel) {
  return sizeof kernel + bytes_of_function + kernel.name.size() +
         kernel.parameters.size() * sizeof(KernelParameter) + bytes_of(*kernel.code);
}

std::uint64_t bytes_of(const GlobalVariable& variable) {
  std::uint64_t bytes =
      sizeof variable + bytes_of_block + variable.name.size() + variable.initial.size();
  for (const Relocation& relocation : variable.relocations) {
    bytes += sizeof relocation + relocation.symbol.size();
  }
  return bytes;
}

// Charges the memory of a program while it is made.
class ProgramBytes {
 public:
  explicit ProgramBytes(ptx::ModuleBudget& budget) : budget_(budget) {}
  void add(std::uint64_t bytes, std::uint32_t line) {
    budget_.memory.spend(bytes, line);
    sum_ += bytes;
  }
  // Makes the program's memory and steps the process's.
  void give_to(Program& program) const {
    const auto take = [](limits::Share& share, std::uint64_t count, const limits::Limit& limit) {
      if (!share.take(count)) throw ptx::SyntaxError(1, "the process has " + limits::beyond(limit));
    };
    take(program.memory, sum_, limits::process_memory);
    take(program.steps, budget_.steps.taken(), limits::process_steps);
  }

 private:
  ptx::ModuleBudget& budget_;
  std::uint64_t sum_ = 0;
};

}  // namespace

// Its destructor does nothing: programs may live until the process ends.
limits::SharedAllowance& process_steps() noexcept {
  static limits::SharedAllowance steps(limits::process_steps);
  return steps;
}

std::shared_ptr<const Program> compile(std::string_view ptx_text) {
  ptx::ModuleBudget budget;
  return compile(ptx::parse(ptx_text, budget), budget);
}

std::shared_ptr<const Program> compile(const ptx::Module& module, ptx::ModuleBudget& budget) {
  if (module.address_size != 64) {
    throw ptx::SyntaxError(1, "the module is for 32-bit addresses; only .address_size 64 runs");
  }
  auto program = std::make_shared<Program>();
  ProgramBytes bytes(budget);
  lower::ModuleNames names;
  names.target = ptx::target_of(module);
  for (const ptx::Variable& variable : module.variables) {
    if (variable.space == Space::shared) {
      names.shared[variable.name] = &variable;
      continue;
    }
    names.globals[variable.name] = {.kind = Symbol::Kind::global,
                                    .offset = program->globals.size(),
                                    .element = lower::element_bytes(variable)};
    program->globals.push_back(global_variable(variable));
    bytes.add(bytes_of(program->globals.back()), variable.line);
  }
  for (const ptx::Function& function : module.functions) {
    names.functions[function.name] = &function;
  }
  lower::find_calls(module, names);
  for (const ptx::Variable& variable : module.variables) check_addresses(variable, names);
  for (GlobalVariable& variable : program->globals) place_functions(variable, names);
  bytes.add(module.sources.bytes(), 1);
  const auto sources = std::make_shared<const ptx::SourceMap>(module.sources);
  const std::uint32_t constants = constant_bytes(program->globals);
  for (const ptx::Function& function : module.functions) {
    if (function.is_entry && !function.is_declaration) {
      program->kernels.push_back(lower_kernel(function, names, budget));
      program->kernels.back().sources = sources;
      program->kernels.back().constant_bytes = constants;
      bytes.add(bytes_of(program->kernels.back()), function.line);
    }
  }
  bytes.give_to(*program);
  return program;
}

}  // namespace ctxbroker::software::exec
