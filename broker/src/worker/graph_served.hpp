// SPDX-License-Identifier: Apache-2.0
// A graph's plug-ins in the worker: what each message of the host's does with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/worker_module.h"
#include "worker/graph_wire.hpp"
#include "worker/loaded_nodes.hpp"
#include "worker/shared_devices.hpp"

namespace ctxbroker::detail {

// Throws what the host's messages must not bring about. Both sides are of one build, so it is a
// mistake of this library.
void need_of_message(bool good, const char* what);

class Served {
 public:
  explicit Served(const ctxb_worker_host* host) : host_(host) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    graph_.reset();
    nodes_.clear();
  }

  std::uint64_t epoch() const noexcept { return epoch_; }

  Json open(std::uint64_t epoch, const Json& ask);
  Json create(const Json& ask);
  Json restore(const Json& ask);
  Json question(const Json& ask);
  Json load_preset(const Json& ask);
  Json save_preset(const Json& ask);
  Json set(const Json& ask);
  Json activate(const Json& ask);
  Json deactivate();
  Json write_timeline(const Json& ask);
  Json lend_device(const Json& ask);
  Json take_back_device(const Json& ask);
  Json make_device(const Json& ask);
  void run(std::uint32_t type, const JobMessage& message, JobReply& reply);
  void poll() {
    if (broker_) broker_->poll();
  }

 private:
  LoadedNode& node(const Json& ask);
  Json connect(const Json& ask);
  void read_table(const JobMessage& message);

  const ctxb_worker_host* host_;
  std::uint64_t epoch_ = 0;
  std::optional<Broker> broker_;
  SharedDevices devices_;
  std::vector<LoadedNode> nodes_;
  std::optional<Graph> graph_;
  std::vector<bool> on_device_;  // each buffer of a job: inputs, then outputs
  // Of the last job, so that the next one allocates nothing.
  JobInfo job_;
  JobBuffers buffers_;
  JobEvents events_;
};

}  // namespace ctxbroker::detail
