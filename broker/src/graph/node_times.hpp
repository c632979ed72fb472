// SPDX-License-Identifier: Apache-2.0
// Measures when one node of a graph worked on the device, and puts that into the timeline. Taking
// times costs more than everything else that a graph adds to a small job, so it is done only for
// hosts that ask for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "context/resources.hpp"

namespace ctxbroker::detail {

// Serves one job at a time, on one stream. Call everything but the constructor inside the lease.
class NodeTimes {
 public:
  NodeTimes() = default;
  // Throws Error: out_of_memory, context_lost, driver_call.
  explicit NodeTimes(const std::shared_ptr<Lease>& lease);

  const Event& begin() const noexcept { return begin_; }
  const Event& end() const noexcept { return end_; }

  // Relates the device's clock to the CPU's clock. Call it before the job's first work on the
  // stream, while the stream is idle. Does nothing unless a timeline is recorded. Never waits.
  void tie_clocks(const DriverTable& driver, CUstream stream) noexcept;

  // Returns the device time from begin to end in ns, or 0 when the driver does not tell, and puts
  // it into the timeline under the plug-in's name. Call it when all work is done.
  std::uint64_t take(const Lease& lease, const std::string& plugin) noexcept;

 private:
  void record(const Lease& lease, const std::string& plugin, std::uint64_t length) noexcept;

  Event begin_, end_;
  Event tie_;
  std::uint64_t tied_at_ = 0;  // ns; 0: not in this job
};

}  // namespace ctxbroker::detail
