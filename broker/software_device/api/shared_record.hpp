// SPDX-License-Identifier: Apache-2.0
// The last record of an event that several processes use: two counters in memory that they share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "api/command.hpp"
#include "api/shared_file.hpp"

namespace ctxbroker::software {

// Thread-safe.
class SharedRecord : public std::enable_shared_from_this<SharedRecord> {
 public:
  static constexpr std::size_t bytes = 4096;

  // CUDA_ERROR_OUT_OF_MEMORY.
  explicit SharedRecord(std::shared_ptr<SharedFile> its_file);
  ~SharedRecord();
  SharedRecord(const SharedRecord&) = delete;
  SharedRecord& operator=(const SharedRecord&) = delete;

  // A new record, and the command that ends it when its stream comes to it. Whoever cannot enqueue
  // the command calls its work, so that nobody waits for the record.
  std::shared_ptr<Command> begin();
  // What is done when the last record is, whichever process made that; null if it is done already,
  // or if there is none. A record that comes after it and is done earlier ends it too.
  std::shared_ptr<Command> latest();

  const std::shared_ptr<SharedFile> file;

 private:
  struct Counters;
  bool is_done(std::uint32_t record) const noexcept;
  void end(std::uint32_t record) noexcept;
  void watch(std::uint32_t record, const std::shared_ptr<Command>& command) const noexcept;

  Counters* const counters_;
  std::mutex mutex_;
  // Of the last record that this process knows of; null: of none.
  std::shared_ptr<Command> command_;
  std::uint32_t record_ = 0;
};

}  // namespace ctxbroker::software
