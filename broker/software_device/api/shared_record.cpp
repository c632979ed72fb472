// SPDX-License-Identifier: Apache-2.0
#include "api/shared_record.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>
#include <new>
#include <thread>
#include <utility>

#include "api/process.hpp"
#include "api/status.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::software {

// They start over after four thousand million records, hence the differences below.
struct SharedRecord::Counters {
  std::atomic<std::uint32_t> begun, ended;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

SharedRecord::SharedRecord(std::shared_ptr<SharedFile> its_file)
    : file(std::move(its_file)),
      counters_(static_cast<Counters*>(file->show(bytes, PROT_READ | PROT_WRITE))) {
  check_that(counters_ != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
}

SharedRecord::~SharedRecord() {
  munmap(counters_, bytes);
}

bool SharedRecord::is_done(std::uint32_t record) const noexcept {
  return static_cast<std::int32_t>(counters_->ended.load(std::memory_order_acquire) - record) >= 0;
}

void SharedRecord::end(std::uint32_t record) noexcept {
  std::uint32_t ended = counters_->ended;
  while (static_cast<std::int32_t>(record - ended) > 0 &&
         !counters_->ended.compare_exchange_weak(ended, record, std::memory_order_release)) {
  }
  syscall(SYS_futex, &counters_->ended, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::shared_ptr<Command> SharedRecord::begin() {
  auto command = std::make_shared<Command>();
  command->kind = Command::Kind::transfer;
  command->even_after_fault = true;  // other processes go on
  std::lock_guard lock(mutex_);
  record_ = ++counters_->begun;
  command->work = [self = shared_from_this(), record = record_] {
    self->end(record);
    return CUDA_SUCCESS;
  };
  command_ = command;
  return command;
}

std::shared_ptr<Command> SharedRecord::latest() {
  std::lock_guard lock(mutex_);
  const std::uint32_t record = counters_->begun.load(std::memory_order_acquire);
  if (is_done(record)) return nullptr;
  if (command_ != nullptr && record_ == record) return command_;
  auto command = std::make_shared<Command>();
  ctxbroker::detail::start_own_thread([self = shared_from_this(), record, command] {
    self->watch(record, command);
  }).detach();
  record_ = record;
  command_ = command;
  return command;
}

// On a thread of its own, since nothing in this process tells of the end of another's record.
void SharedRecord::watch(std::uint32_t record,
                         const std::shared_ptr<Command>& command) const noexcept {
  // Looks up now and then: work of this process may have failed, or the driver ended.
  constexpr timespec patience = {0, 5'000'000};
  while (Process::admission() == CUDA_SUCCESS && Process::fault() == CUDA_SUCCESS) {
    const std::uint32_t ended = counters_->ended.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(ended - record) >= 0) break;
    syscall(SYS_futex, &counters_->ended, FUTEX_WAIT, ended, &patience, nullptr, 0);
  }
  command->finished_at = Command::Clock::now();
  command->done.store(true, std::memory_order_release);
  if (Process::admission() != CUDA_SUCCESS) return;
  for (const auto& device : Process::instance().devices) device->executor.wake();
}

}  // namespace ctxbroker::software
