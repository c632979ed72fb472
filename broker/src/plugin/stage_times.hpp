// When one stage of a chain worked on the device: the events around its work, and what places them
// in the timeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "context/resources.hpp"

namespace ctxbroker::detail {

// One job at a time, on one stream. All but the constructor are called inside the lease.
class StageTimes {
 public:
  StageTimes() = default;
  // Throws Error: out_of_memory, context_lost, driver_call.
  explicit StageTimes(const std::shared_ptr<Lease>& lease);

  const Event& begin() const noexcept { return begin_; }
  const Event& end() const noexcept { return end_; }  // also the hand-over to the next stage

  // Before the job's first work on the stream, which is idle: ties the device's clock to the
  // CPU's. Only when a timeline is recorded; never waits.
  void tie_clocks(const DriverTable& driver, CUstream stream) noexcept;

  // When all work is done: device time of begin to end in ns, 0 when the driver does not tell. Puts
  // it into the timeline under the plug-in's name.
  std::uint64_t take(const Lease& lease, const std::string& plugin) noexcept;

 private:
  void record(const Lease& lease, const std::string& plugin, std::uint64_t length) noexcept;

  Event begin_, end_;
  Event tie_;
  std::uint64_t tied_at_ = 0;  // ns; 0: not in this job
};

}  // namespace ctxbroker::detail
