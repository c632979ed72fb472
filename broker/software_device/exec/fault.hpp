// SPDX-License-Identifier: Apache-2.0
// What a fault says to people.
#pragma once

#include <string>

#include "exec/engine.hpp"
#include "memory/memory_map.hpp"
#include "ptx/source_map.hpp"

namespace ctxbroker::software::exec {

// Where a fault happened.
struct FaultPlace {
  std::string kernel;
  Dim3 block, thread;
  const MemoryMap* memory = nullptr;        // may be null, as all the following
  const ptx::SourceMap* sources = nullptr;  // of the kernel's text
  const char* owner = nullptr;              // who launched it
};

// One sentence: kernel, block, thread, address, what lies there, and the line of the source, or of
// the PTX text. For a failed assert the line that CUDA prints, with the texts from memory.
std::string describe(const FaultRecord& fault, const FaultPlace& place);

// What an address that nobody may use lies next to: ", 4 bytes past the end of 4096 bytes at
// 0x7f00 of tenant blur". Empty: nothing is near.
std::string describe_surroundings(const MemoryMap& memory, std::uint64_t address,
                                  std::uint64_t bytes);

}  // namespace ctxbroker::software::exec
