// SPDX-License-Identifier: Apache-2.0
// What a process gives up for good, with its children. It loads foreign code only afterwards.
#pragma once

namespace ctxbroker::detail {

// All sockets but Unix ones: from now on, socket() answers EACCES. Throws std::system_error when
// the kernel has no system-call filters.
void give_up_network();

// The memory, the descriptors, the limits and the signals of all other processes but its children.
// Throws std::system_error when the kernel is older than 6.12 or has no Landlock, and
// std::logic_error when the process has several threads, because the others would not be held.
void give_up_other_processes();

}  // namespace ctxbroker::detail
