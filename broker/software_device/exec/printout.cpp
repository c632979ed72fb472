// SPDX-License-Identifier: Apache-2.0
#include "exec/printout.hpp"

namespace ctxbroker::software::exec {

void Printout::add(std::string_view text) {
  const std::lock_guard lock(mutex_);
  texts_.append(text);
  if (texts_.size() >= capacity_) write_all();
}

void Printout::flush() {
  const std::lock_guard lock(mutex_);
  write_all();
}

// In one call, so that nothing that the host prints gets into a text, and flushed, so that it
// stands before what the host prints next, whatever its buffer.
void Printout::write_all() {
  if (texts_.empty()) return;
  std::fwrite(texts_.data(), 1, texts_.size(), to_);
  std::fflush(to_);
  texts_.clear();
}

}  // namespace ctxbroker::software::exec
