// SPDX-License-Identifier: Apache-2.0
// When a descriptor that another process has chosen may be closed: not while a process is started.
//
// A process that is started has copies of all descriptors for a moment. If the host closed its own
// one meanwhile, the new process would be the last owner, and would wait until it is closed, and so
// would who starts it.
#pragma once

namespace ctxbroker::detail {

// Waits until no process is started, and closes the descriptor, which can take long. Any thread.
void close_foreign(int descriptor) noexcept;

// While one of these lives, close_foreign begins to close nothing.
class NoForeignClose {
 public:
  NoForeignClose() noexcept;
  NoForeignClose(const NoForeignClose&) = delete;
  NoForeignClose& operator=(const NoForeignClose&) = delete;
  ~NoForeignClose();
};

}  // namespace ctxbroker::detail
