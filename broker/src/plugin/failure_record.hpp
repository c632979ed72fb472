// Why the plug-in function that runs now is about to fail: what the plug-in said, and what the host
// refused it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

struct Failure {
  ctxb_status status = CTXB_OK;
  int driver_status = 0;  // CUresult
  std::string text;
};

// Any thread. Costs one load while nothing is recorded.
class FailureRecord {
 public:
  void plugin_said(Failure failure);
  void host_refused(Failure failure);

  struct Both {
    Failure said, refused;
  };
  // What was recorded since the last clear.
  Both read() const;
  void clear() noexcept;

 private:
  std::atomic<bool> recorded_{false};
  mutable std::mutex mutex_;
  Both both_;
};

}  // namespace ctxbroker::detail
