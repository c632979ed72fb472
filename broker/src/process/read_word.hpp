// SPDX-License-Identifier: Apache-2.0
// Reads memory of this process that may be gone meanwhile.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

namespace ctxbroker::detail {

// Returns the word at an address, or 0 if nothing is mapped there. It makes a system call.
inline std::uintptr_t read_word(std::uintptr_t at) noexcept {
  std::uintptr_t word = 0;
  const iovec here{&word, sizeof word}, there{reinterpret_cast<void*>(at), sizeof word};
  const auto length = static_cast<ssize_t>(sizeof word);
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == length ? word : 0;
}

// Returns where the table of virtual functions of the object at an address lies, which tells whose
// class it has, or 0 if there is no such object. The object may be gone, and its memory in use for
// something else.
inline std::uintptr_t class_of_object(std::uintptr_t at) noexcept {
  const std::uintptr_t functions = at != 0 ? read_word(at) : 0;
  const std::uintptr_t first = functions != 0 ? read_word(functions) : 0;
  return first != 0 && read_word(first) != 0 ? functions : 0;
}

}  // namespace ctxbroker::detail
