// Events: points in a stream's work.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "api/capture.hpp"
#include "api/command.hpp"
#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct Context;

struct Event {
  Event(Context& of, unsigned its_flags) : context(of), flags(its_flags) {}

  Context& context;  // never a green one
  CUevent handle = nullptr;
  const unsigned flags;

  // The command of the last record; null before the first.
  std::shared_ptr<Command> latest() const {
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
