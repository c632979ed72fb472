// Events: points in a stream's work.
#pragma once

#include <memory>
#include <mutex>

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
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Command> latest_;
};

}  // namespace ctxbroker::software
