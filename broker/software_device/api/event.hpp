// SPDX-License-Identifier: Apache-2.0
// Events: points in a stream's work.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "api/capture.hpp"
#include "api/command.hpp"
#include "api/cuda_api.hpp"
#include "api/shared_record.hpp"

namespace ctxbroker::software {

struct Context;

struct Event {
  Event(Context& of, unsigned its_flags, std::shared_ptr<SharedRecord> its_shared = nullptr)
      : context(of), flags(its_flags), shared(std::move(its_shared)) {}

  Context& context;  // never a green one
  CUevent handle = nullptr;
  const unsigned flags;
  const std::shared_ptr<SharedRecord> shared;  // with other processes; null: not shared

  // The command that stands for a new record, to be enqueued and then set.
  std::shared_ptr<Command> new_record() const {
    return shared != nullptr ? shared->begin() : std::make_shared<Command>();
  }
  // The command of the last record; null before the first.
  std::shared_ptr<Command> latest() const {
    if (shared != nullptr) return shared->latest();
    std::lock_guard lock(mutex_);
    return latest_;
  }
  void set_latest(std::shared_ptr<Command> command) {
    std::lock_guard lock(mutex_);
    latest_ = std::move(command);
    captured_.reset();
  }
  // The last record, if that was in a capture: then nothing of it is ever executed as it is.
  std::optional<CapturedRecord> captured() const {
    std::lock_guard lock(mutex_);
    return captured_;
  }
  void set_captured(CapturedRecord record) {
    std::lock_guard lock(mutex_);
    captured_ = std::move(record);
    latest_ = nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Command> latest_;
  std::optional<CapturedRecord> captured_;
};

}  // namespace ctxbroker::software
