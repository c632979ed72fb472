// SPDX-License-Identifier: Apache-2.0
// What a process has of the machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "support/left.hpp"

namespace ctxbroker::campaign {

// Above what a process has anyway, this much is enough for all but a plug-in that takes all.
inline constexpr std::uint64_t memory_headroom = 512ULL << 20;

// A sanitizer keeps what was freed, and needs much memory itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

std::uint64_t data_bytes(pid_t process);  // what RLIMIT_DATA counts
std::uint64_t resident_bytes();           // of this process, its own pages only
std::size_t count_shared_files();         // ctxbroker's in /dev/shm

}  // namespace ctxbroker::campaign
