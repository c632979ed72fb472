// SPDX-License-Identifier: Apache-2.0
// A compiled module: what the engines execute and what the driver surface must know about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/budget.hpp"
#include "ptx/module.hpp"

namespace ctxbroker::software::exec {

class Code;  // one kernel's pre-decoded instructions; defined in exec/

struct KernelParameter {
  std::uint32_t offset = 0, size = 0, alignment = 1;  // bytes in the parameter buffer
};

struct Kernel {
  std::string name;
  std::vector<KernelParameter> parameters;
  std::uint32_t parameter_bytes = 0;      // of the whole packed buffer
  std::uint32_t static_shared_bytes = 0;  // per block
  std::uint32_t local_bytes = 0;          // per thread
  std::uint32_t constant_bytes = 0;       // of all .const variables of the module
  std::uint32_t registers = 0;            // per thread, as the driver would report (an estimate)
  std::uint32_t max_threads = 1024;       // per block
  unsigned target = 0;                    // 75 of PTX for sm_75; 0: unknown
  bool uses_heap = false;                 // calls malloc or free
  std::shared_ptr<const Code> code;
  std::shared_ptr<const ptx::SourceMap> sources;  // of the whole text
};

// A pointer-sized initial value that names another variable: address of `symbol` plus `addend` is
// stored at `offset` when the module is placed in memory.
struct Relocation {
  std::uint64_t offset = 0;
  std::string symbol;
  std::int64_t addend = 0;
};

// A .global or .const variable; a module's instance holds memory for each.
struct GlobalVariable {
  std::string name;
  std::uint64_t size = 0, alignment = 1;  // bytes
  bool constant = false;
  std::vector<std::byte> initial;  // of its first bytes; zeros follow
  std::vector<Relocation> relocations;
};

// The steps of all programs that live in the process.
limits::SharedAllowance& process_steps() noexcept;

struct Program {
  std::vector<Kernel> kernels;
  std::vector<GlobalVariable> globals;  // their index is what Launch::globals is indexed by

  limits::Share steps{process_steps()}, memory{ptx::process_memory()};

  const Kernel* find_kernel(std::string_view name) const noexcept;
};

// PTX text to a program. Throws ptx::SyntaxError, with the line, for a mistake and for an
// instruction that the engines do not execute ("instruction not supported: wmma.load.a...").
std::shared_ptr<const Program> compile(std::string_view ptx_text);
std::shared_ptr<const Program> compile(const ptx::Module& module, ptx::ModuleBudget& budget);

}  // namespace ctxbroker::software::exec
