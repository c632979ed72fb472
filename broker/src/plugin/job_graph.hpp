// SPDX-License-Identifier: Apache-2.0
// The work of one job as a CUDA graph. The broker captures what the plug-in enqueues on its stream
// and launches it at once. The next job's capture updates the executable graph, or makes a new one
// when its shape has changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "context/open_captures.hpp"
#include "context/resources.hpp"

namespace ctxbroker::detail {

inline constexpr EndOf<CUgraphExec> graph_exec_end{&DriverTable::graph_exec_destroy, Home::context,
                                                   false, &LeaseCounters::graphs, "graph"};
using GraphExec = Owned<CUgraphExec, graph_exec_end>;

// Belongs to one activation. Call it on the thread of the process calls and inside the lease.
class JobGraph {
 public:
  // The outcome of a step. `what` says what went wrong, and `status` is the driver's if the driver
  // reported it.
  struct Outcome {
    CUresult status = CUDA_SUCCESS;
    const char* what = "";  // static text
    bool ok() const noexcept { return *what == '\0'; }
  };

  bool wanted() const noexcept { return wanted_; }
  void want(bool wanted) noexcept { wanted_ = wanted; }
  void give_up() noexcept;
  // Drops the graph, because its kernels are no longer valid. The next job makes another one.
  void forget() noexcept { exec_.reset(); }

  // Begins to capture the stream's work.
  Outcome begin(const DriverTable& driver, CUstream stream) noexcept;
  // Ends the capture. Launches what was captured, or drops it when `launch` is false.
  Outcome end(const std::shared_ptr<Lease>& lease, CUstream stream, bool launch) noexcept;

 private:
  Outcome launch(const std::shared_ptr<Lease>& lease, CUstream stream, CUgraph graph) noexcept;
  Outcome make(const std::shared_ptr<Lease>& lease, CUgraph graph) noexcept;

  bool wanted_ = false;
  std::optional<OpenCaptures::OfJob> capture_;  // while it is open
  GraphExec exec_;
  std::uint64_t clusters_ = 0;  // the shapes of its kernels' clusters
};

}  // namespace ctxbroker::detail
