// SPDX-License-Identifier: Apache-2.0
// A graph's plug-ins in the worker, and what each message from the host does with them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "context/resources.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/worker_module.h"
#include "worker/graph_wire.hpp"
#include "worker/loaded_nodes.hpp"
#include "worker/shared_devices.hpp"

namespace ctxbroker::detail {

// Throws what the host's messages must not bring about. Both sides are of one build, so it is a
// mistake of this library.
void check_message(bool good, const char* what);

// The table in a job's block before the samples.
struct JobTable {
  JobBuffers buffers;
  std::vector<BufferPlace> places;  // inputs, then outputs
  std::vector<ImageRegion> extents;
  std::vector<WorkerParameterChange> changes;
};

// `on_device` says where each buffer has to be: inputs, then outputs. Throws as check_message.
void read_table(const ctxb_worker_host& host, const JobMessage& message,
                const std::vector<bool>& on_device, const SharedDevices& devices, JobTable& read);

// The states that go with an answer, behind its text.
using States = std::vector<std::vector<std::byte>>;

class Served {
 public:
  explicit Served(const ctxb_worker_host* host) : host_(host) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    end_graph();
    nodes_.clear();
  }

  std::uint64_t epoch() const noexcept { return epoch_; }

  Json open(std::uint64_t epoch, const Json& ask);
  Json create(const Json& ask);
  Json restore(const Json& ask, std::span<const std::byte> state);
  Json question(const Json& ask);
  Json load_preset(const Json& ask, std::span<const std::byte> state);
  Json save_preset(const Json& ask, States& states);
  Json set(const Json& ask);
  Json activate(const Json& ask);
  Json deactivate(States& states);
  Json write_timeline(const Json& ask);
  Json lend_device(const Json& ask);
  Json take_back_device(const Json& ask);
  Json make_device(const Json& ask);
  void run(std::uint32_t type, const JobMessage& message, JobReply& reply);
  // A block is about to be unmapped. Throws if that must not be.
  void forget_block(std::uint64_t block);
  void poll() {
    if (broker_) broker_->poll();
  }

 private:
  LoadedNode& node(const Json& ask);
  Json connect(const Json& ask);
  void end_graph();
  void find_direct(std::uint32_t type, const JobMessage& message);
  bool is_registered(std::uint64_t block);
  bool hangs() const;
  void run_job(std::uint32_t type, const JobMessage& message, JobReply& reply);

  const ctxb_worker_host* host_;
  std::uint64_t epoch_ = 0;
  std::optional<Broker> broker_;
  SharedDevices devices_;
  std::vector<LoadedNode> nodes_;
  std::optional<Graph> graph_;
  // With CUDA, as long as there is the graph: the blocks that its jobs use. Empty if that failed.
  std::map<std::uint64_t, RegisteredMemory> registered_;
  bool is_failure_told_ = false;  // of a registration
  std::vector<bool> on_device_;   // each buffer of a job: inputs, then outputs
  // Data of the last job, kept so that the next one allocates nothing.
  JobTable table_;
  JobInfo job_;
  JobEvents events_;
  std::vector<bool> is_direct_;  // the buffers, inputs and then outputs: see Access::set_direct
};

}  // namespace ctxbroker::detail
