// What one job in flight needs for itself: buffers, staging and events.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/resources.hpp"
#include "graph/node_times.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

struct JobSlot {
  std::uint64_t job = 0;  // its number; 0: free
  std::size_t begun = 0;  // how many nodes, in the order of running, have been asked to process
  bool marked = true;     // the marks below could be made
  JobInfo info;
  std::vector<void*> outputs;  // the host's memory

  std::vector<DeviceMemory> buffers;    // of the plan
  std::vector<PinnedMemory> uploads;    // of the graph's inputs: what the device reads
  std::vector<PinnedMemory> downloads;  // of its outputs
  std::vector<NodeTimes> times;         // of each node
  std::vector<Event> uploaded;          // of each input that several nodes read; else empty
  std::vector<Event> ended;             // of each node that nobody waits for, or whose output the
                                        // host gets: also its downloads are done; else empty
  // For each node the number of the last job whose work it has ended, or 0 if it makes no marks. A
  // mark can still be read after a fault, when the driver answers nothing any more.
  PinnedMemory marks;
  std::vector<bool> makes_marks;  // of each node
};

// Throws Error: out_of_memory, context_lost, driver_call.
// A node that nobody waits for makes marks only if `several` jobs may be in flight.
JobSlot make_slot(const Wiring& wiring, const BufferPlan& plan,
                  const std::vector<std::shared_ptr<Lease>>& leases, const ActivationSizes& sizes,
                  bool several);

}  // namespace ctxbroker::detail
