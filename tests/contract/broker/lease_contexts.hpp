// SPDX-License-Identifier: Apache-2.0
// Which contexts are whose, for tests that look whether a guard led into the right lease.
#pragma once

#include <map>
#include <mutex>

#include "ctxbroker/lease.hpp"

namespace ctxbroker {

// A green lease gives a second thread a sibling of its context and tells nobody which: there any
// context is right that has never been seen in another lease. Any thread.
class LeaseContexts {
 public:
  // First for every lease, so that no lease's own context is taken for another one's sibling.
  void add(const LeaseInfo& lease) {
    const std::lock_guard lock(mutex_);
    lease_of_[lease.context] = lease.context;
  }

  bool is_right(CUcontext current, const LeaseInfo& lease) {
    if (current == lease.context) return true;
    if (current == nullptr || lease.granted.kind != LeaseKind::green) return false;
    const std::lock_guard lock(mutex_);
    return lease_of_.try_emplace(current, lease.context).first->second == lease.context;
  }

 private:
  std::mutex mutex_;
  std::map<CUcontext, CUcontext> lease_of_;  // its first context names a lease
};

}  // namespace ctxbroker
