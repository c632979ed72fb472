// SPDX-License-Identifier: Apache-2.0
// Descriptors that another process has chosen.
//
// The end of such a descriptor can take long, or for ever: that of a socket that has still to send
// (SO_LINGER), or of a file that a program serves (FUSE). So nothing that somebody waits for closes
// one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "process/child.hpp"

namespace ctxbroker::detail {

// True for a memory file, and for memory that a driver shares: a file of a device, or one without a
// name. Never waits for who serves the file.
bool is_memory(int descriptor) noexcept;

// Closes descriptors on a thread that it starts for that, and that is left behind when it does not
// end.
class Closer : public std::enable_shared_from_this<Closer> {
 public:
  Closer() = default;
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  ~Closer();

  // Never waits. If there is no memory or no thread, the descriptor stays open.
  void close(Descriptor descriptor) noexcept;
  // How many are not closed yet.
  std::size_t waiting() const noexcept;
  // Waits until all are closed, at most for this time.
  void wait(std::chrono::milliseconds time) noexcept;

 private:
  void run() noexcept;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<Descriptor> waiting_;
  bool is_closing_ = false;  // the thread has one in its hand
  bool runs_ = false;
  std::thread thread_;
};

}  // namespace ctxbroker::detail
