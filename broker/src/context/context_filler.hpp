// The background thread that keeps ready contexts filled up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "context/device_hold.hpp"
#include "ctxbroker/ready_contexts.hpp"

namespace ctxbroker::detail {

// Makes nothing between begin_realtime and end_realtime. Any thread. Without anything to make it
// has no thread.
class ContextFiller {
 public:
  // The devices outlive the filler.
  ContextFiller(const std::vector<std::unique_ptr<DeviceHold>>& devices, ReadyContexts wanted,
                const TenantIdentity& host);
  ~ContextFiller();
  ContextFiller(const ContextFiller&) = delete;
  ContextFiller& operator=(const ContextFiller&) = delete;

  // A device came into use, or a context was taken.
  void wake() noexcept;

  // Nested. begin waits for the context that is being made now.
  void begin_realtime();
  void end_realtime();

  // Waits until nothing is left to make, or can be made. False inside begin_realtime.
  bool wait_until_filled();

 private:
  void run();
  bool fill_one(std::unique_lock<std::mutex>& lock);
  bool wants(const DeviceHold& device, LeaseKind kind) const;

  const std::vector<std::unique_ptr<DeviceHold>>& devices_;
  const ReadyContexts wanted_;
  const TenantIdentity& host_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int realtime_ = 0;
  bool busy_ = false;  // one is being made
  bool idle_ = false;  // looked at everything and found nothing to make
  bool ending_ = false;
  std::map<std::pair<int, LeaseKind>, std::uint64_t> cost_;  // of the last one, bytes
  std::map<std::pair<int, LeaseKind>, bool> refused_;        // by budget or driver: not again
  std::thread thread_;
};

}  // namespace ctxbroker::detail
