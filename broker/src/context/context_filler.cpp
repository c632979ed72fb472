#include "context/context_filler.hpp"

#include <string>

namespace ctxbroker::detail {
namespace {

std::size_t wanted_of(const ReadyContexts& wanted, LeaseKind kind) noexcept {
  return kind == LeaseKind::green ? wanted.green : wanted.private_own;
}

}  // namespace

ContextFiller::ContextFiller(const std::vector<std::unique_ptr<DeviceHold>>& devices,
                             ReadyContexts wanted, const TenantIdentity& host)
    : devices_(devices), wanted_(wanted), host_(host) {
  if (wanted_.green > 0 || wanted_.private_own > 0) thread_ = std::thread([this] { run(); });
}

ContextFiller::~ContextFiller() {
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

void ContextFiller::begin_realtime() {
  std::unique_lock lock(mutex_);
  ++realtime_;
  changed_.wait(lock, [this] { return !busy_; });
}

void ContextFiller::end_realtime() {
  {
    const std::lock_guard lock(mutex_);
    if (realtime_ > 0) --realtime_;
  }
  changed_.notify_all();
}

bool ContextFiller::wait_until_filled() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return true;
  changed_.wait(lock, [this] { return idle_ || realtime_ > 0; });
  return realtime_ == 0;
}

bool ContextFiller::wants(const DeviceHold& device, LeaseKind kind) const {
  const auto refused = refused_.find({device.ordinal(), kind});
  return device.in_use() && !device.fault().happened() && !device.is_stuck() &&
         (kind != LeaseKind::green || device.offers_green()) &&
         (refused == refused_.end() || !refused->second) &&
         device.spares(kind) < wanted_of(wanted_, kind);
}

// Makes one context where one is wanted. The lock is given up meanwhile.
bool ContextFiller::fill_one(std::unique_lock<std::mutex>& lock) {
  for (const auto& device : devices_) {
    for (const LeaseKind kind : {LeaseKind::green, LeaseKind::private_own}) {
      if (!wants(*device, kind)) continue;
      // What stands ready costs what the last of its kind cost; the first is made to find out.
      std::uint64_t held = cost_[{device->ordinal(), kind}];
      for (const LeaseKind each : {LeaseKind::green, LeaseKind::private_own}) {
        held += device->spares(each) * cost_[{device->ordinal(), each}];
      }
      if (held > wanted_.memory_budget) {
        refused_[{device->ordinal(), kind}] = true;
        host_.say(Severity::info, "ready",
                  "no more " + std::string(to_string(kind)) +
                      " contexts are made ahead on device " + std::to_string(device->ordinal()) +
                      ": the budget of " + std::to_string(wanted_.memory_budget) +
                      " bytes is used up");
        continue;
      }
      busy_ = true;
      lock.unlock();
      std::uint64_t bytes = 0;
      const CUresult status = device->make_spare(kind, &bytes);
      lock.lock();
      busy_ = false;
      if (status == CUDA_SUCCESS) {
        cost_[{device->ordinal(), kind}] = bytes;
      } else {
        refused_[{device->ordinal(), kind}] = true;
        host_.say(Severity::warning, "ready",
                  "no " + std::string(to_string(kind)) + " context can be made ahead on device " +
                      std::to_string(device->ordinal()) + ": " +
                      status_text(device->driver().table, status));
      }
      changed_.notify_all();
      return true;
    }
  }
  return false;
}

void ContextFiller::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (realtime_ == 0 && !idle_) {
      if (fill_one(lock)) continue;
      idle_ = true;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return ending_ || (realtime_ == 0 && !idle_); });
  }
}

}  // namespace ctxbroker::detail
