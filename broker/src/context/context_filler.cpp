// SPDX-License-Identifier: Apache-2.0
#include "context/context_filler.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "observe/system_failure.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::array kinds{LeaseKind::green, LeaseKind::private_own};

std::size_t wanted_of(const ReadyContexts& wanted, LeaseKind kind) noexcept {
  return kind == LeaseKind::green ? wanted.green : wanted.private_own;
}

}  // namespace

ContextFiller::ContextFiller(const std::vector<std::unique_ptr<UsedDevice>>& devices,
                             ReadyContexts wanted, const TenantIdentity& host,
                             const RealtimeSession& session)
    : devices_(devices), wanted_(wanted), host_(host), session_(session) {
  if (wanted_.green == 0 && wanted_.private_own == 0) return;
  try {
    thread_ = start_own_thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw system_failure(error.code().value(),
                         std::string("no thread can make contexts ahead: ") + error.what());
  }
}

ContextFiller::~ContextFiller() {
  stop();
}

void ContextFiller::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ContextFiller::wake() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    idle_ = false;
  }
  changed_.notify_all();
}

void ContextFiller::wait_for_last() {
  std::unique_lock lock(mutex_);
  changed_.notify_all();  // for threads in wait_until_filled, which stop waiting in a session
  changed_.wait(lock, [this] { return !busy_; });
}

void ContextFiller::go_on() noexcept {
  // Locked, so that the thread does not miss it between its look and its wait.
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool ContextFiller::wait_until_filled() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return true;
  changed_.wait(lock, [this] { return idle_ || session_.is_open(); });
  return idle_ || !is_short();
}

bool ContextFiller::wants(const UsedDevice& device, LeaseKind kind) const {
  return device.in_use() && !device.fault().happened() && !device.is_making_held_up() &&
         (kind != LeaseKind::green || device.offers_green()) &&
         refused_.count({device.ordinal(), kind}) == 0 &&
         device.spares(kind) < wanted_of(wanted_, kind);
}

// A context takes something, so that with nothing left none is even tried.
std::uint64_t ContextFiller::cost(const UsedDevice& device, LeaseKind kind) const {
  const auto known = cost_.find({device.ordinal(), kind});
  return known == cost_.end() || known->second == 0 ? 1 : known->second;
}

std::uint64_t ContextFiller::left(const UsedDevice& device) const {
  std::uint64_t held = 0;
  for (const LeaseKind kind : kinds) held += device.spares(kind) * cost(device, kind);
  return held < wanted_.memory_budget ? wanted_.memory_budget - held : 0;
}

bool ContextFiller::fits(const UsedDevice& device, LeaseKind kind) const {
  return cost(device, kind) <= left(device);
}

bool ContextFiller::is_short() const {
  for (const auto& device : devices_) {
    for (const LeaseKind kind : kinds) {
      if (wants(*device, kind) && fits(*device, kind)) return true;
    }
  }
  return false;
}

// Makes one context where one is wanted. The lock is given up meanwhile.
bool ContextFiller::fill_one(std::unique_lock<std::mutex>& lock) {
  for (const auto& device : devices_) {
    for (const LeaseKind kind : kinds) {
      if (!wants(*device, kind)) continue;
      if (!fits(*device, kind)) {
        say_of_budget(Severity::info, *device, kind,
                      "no more " + std::string(to_string(kind)) +
                          " contexts are made ahead on device " +
                          std::to_string(device->ordinal()) + ": the budget of " +
                          std::to_string(wanted_.memory_budget) + " bytes is used up");
        continue;
      }
      make_one(lock, *device, kind);
      return true;
    }
  }
  return false;
}

void ContextFiller::make_one(std::unique_lock<std::mutex>& lock, UsedDevice& device,
                             LeaseKind kind) {
  const std::uint64_t room = left(device);
  busy_ = true;
  lock.unlock();
  std::uint64_t bytes = 0;
  const CUresult status = device.make_spare(kind, room, &bytes);
  lock.lock();
  busy_ = false;
  const std::string where = " on device " + std::to_string(device.ordinal());
  const bool is_over_budget = status == CUDA_SUCCESS && bytes > room;
  // While work hangs there, none is wanted. If one takes too much, somebody else may have allocated
  // meanwhile, and a second one tells.
  const bool is_undecided = status == CUDA_ERROR_NOT_READY ||
                            (is_over_budget && misfits_.insert({device.ordinal(), kind}).second);
  if (status != CUDA_SUCCESS && !is_undecided) {
    refused_.insert({device.ordinal(), kind});
    host_.log(Severity::warning, "ready",
              "no " + std::string(to_string(kind)) + " context can be made ahead" + where + ": " +
                  status_text(device.driver().table, status));
  } else if (!is_undecided) {
    if (!is_over_budget) misfits_.erase({device.ordinal(), kind});
    std::uint64_t& most = cost_[{device.ordinal(), kind}];
    most = std::max(most, bytes);
    if (is_over_budget) {
      say_of_budget(Severity::warning, device, kind,
                    "no " + std::string(to_string(kind)) + " context is kept ready" + where +
                        ": one takes " + std::to_string(bytes) + " bytes, but only " +
                        std::to_string(room) + " are left of the budget of " +
                        std::to_string(wanted_.memory_budget) +
                        "; it was given back. Raise ReadyContexts::memory_budget (in C: "
                        "ready_bytes), or ask for none");
    }
  }
  changed_.notify_all();
}

// Once of each kind: one line says what the budget did to it.
void ContextFiller::say_of_budget(Severity severity, const UsedDevice& device, LeaseKind kind,
                                  const std::string& text) {
  if (said_.insert({device.ordinal(), kind}).second) host_.log(severity, "ready", text);
}

void ContextFiller::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (!session_.is_open() && !idle_) {
      if (fill_one(lock)) continue;
      idle_ = true;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return ending_ || (!session_.is_open() && !idle_); });
  }
}

}  // namespace ctxbroker::detail
