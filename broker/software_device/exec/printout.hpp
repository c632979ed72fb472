// SPDX-License-Identifier: Apache-2.0
// What the threads of one launch print.
#pragma once

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace ctxbroker::software::exec {

// A buffer of whole texts. CUDA's guide lets newer texts overwrite older ones where it is full;
// here it is written out then, so that nothing is ever lost. (Nor was it by an H200 with CUDA 13.)
// Thread-safe.
class Printout {
 public:
  // `capacity`: bytes from which on they are written at once.
  Printout(std::FILE* to, std::size_t capacity) : to_(to), capacity_(capacity) {}
  Printout(const Printout&) = delete;
  Printout& operator=(const Printout&) = delete;

  void add(std::string_view text);  // throws std::bad_alloc
  void flush();

 private:
  void write_all();

  std::FILE* const to_;
  const std::size_t capacity_;
  std::mutex mutex_;
  std::string texts_;
};

}  // namespace ctxbroker::software::exec
