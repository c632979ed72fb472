// SPDX-License-Identifier: Apache-2.0
// The background thread that keeps ready contexts filled up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context/realtime_session.hpp"
#include "context/used_device.hpp"
#include "ctxbroker/ready_contexts.hpp"

namespace ctxbroker::detail {

// Creates no context while the broker has a real-time session open. Has no background thread when
// no ready contexts are wanted. Any thread may use it.
class ContextFiller {
 public:
  // All three references must outlive the filler.
  ContextFiller(const std::vector<std::unique_ptr<UsedDevice>>& devices, ReadyContexts wanted,
                const TenantIdentity& host, const RealtimeSession& session);
  ~ContextFiller();
  ContextFiller(const ContextFiller&) = delete;
  ContextFiller& operator=(const ContextFiller&) = delete;

  // Ends the background thread.
  void stop() noexcept;

  // Looks again, because a device came into use or a context was taken.
  void wake() noexcept;

  // Call it after a session has begun. Waits until the context that is being made is finished.
  void wait_for_last();
  // Goes on with making contexts. Call it after a session has ended.
  void go_on() noexcept;

  // Waits until all wanted contexts exist or no more can be made. In a session it does not wait,
  // and returns false when some are missing.
  bool wait_until_filled();

 private:
  void run();
  bool fill_one(std::unique_lock<std::mutex>& lock);
  void make_one(std::unique_lock<std::mutex>& lock, UsedDevice& device, LeaseKind kind);
  void say_of_budget(Severity severity, const UsedDevice& device, LeaseKind kind,
                     const std::string& text);
  bool wants(const UsedDevice& device, LeaseKind kind) const;
  bool fits(const UsedDevice& device, LeaseKind kind) const;
  bool is_short() const;
  std::uint64_t cost(const UsedDevice& device, LeaseKind kind) const;  // 1 while it is not known
  std::uint64_t left(const UsedDevice& device) const;                  // of the budget

  const std::vector<std::unique_ptr<UsedDevice>>& devices_;
  const ReadyContexts wanted_;
  const TenantIdentity& host_;
  const RealtimeSession& session_;  // begins before wait_for_last locks, and ends before go_on does
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;  // one is being made
  bool idle_ = false;  // looked at everything and found nothing to make
  bool ending_ = false;
  using DeviceAndKind = std::pair<int, LeaseKind>;
  std::map<DeviceAndKind, std::uint64_t> cost_;  // bytes, of the dearest; none: none was made yet
  std::set<DeviceAndKind> misfits_;              // one seemed to take more than was left
  std::set<DeviceAndKind> refused_;              // by the driver: not again
  std::set<DeviceAndKind> said_;                 // that the budget allows no more
  std::thread thread_;
};

}  // namespace ctxbroker::detail
