// The work of one job as a graph: what the plug-in enqueues on its stream is captured, and launched
// in one go. The next job's capture brings the executable graph up to date; another shape makes a
// new one.
#pragma once

#include <cstdint>
#include <memory>

#include "context/resources.hpp"

namespace ctxbroker::detail {

inline constexpr EndOf<CUgraphExec> graph_exec_end{&DriverTable::graph_exec_destroy, Home::context,
                                                   false, &Holdings::graphs, "graph"};
using GraphExec = Owned<CUgraphExec, graph_exec_end>;

// Of one activation, on the thread of its process calls and inside its lease.
class JobGraph {
 public:
  // What went wrong; the driver's status where it was the driver that said so.
  struct Outcome {
    CUresult status = CUDA_SUCCESS;
    const char* what = "";  // static text
    bool ok() const noexcept { return *what == '\0'; }
  };

  bool wanted() const noexcept { return wanted_; }
  void want(bool wanted) noexcept { wanted_ = wanted; }
  void give_up() noexcept;
  // The kernels in it are no longer good: the next job makes another.
  void forget() noexcept { exec_.reset(); }

  // From here on the stream's work is captured.
  Outcome begin(const DriverTable& driver, CUstream stream) noexcept;
  // Ends the capture and launches what was captured; unless `launch`, drops it.
  Outcome end(const std::shared_ptr<Lease>& lease, CUstream stream, bool launch) noexcept;

 private:
  Outcome launch(const std::shared_ptr<Lease>& lease, CUstream stream, CUgraph graph) noexcept;
  Outcome make(const std::shared_ptr<Lease>& lease, CUgraph graph) noexcept;

  bool wanted_ = false;
  GraphExec exec_;
  std::uint64_t clusters_ = 0;  // the shapes of its kernels' clusters
};

}  // namespace ctxbroker::detail
