// SPDX-License-Identifier: Apache-2.0
#include "graph/job_flight.hpp"

#include <algorithm>
#include <cstring>

#include "process/float_control.hpp"

namespace ctxbroker::detail {

void DoneCall::begin(std::uint64_t job) noexcept {
  const std::lock_guard lock(mutex_);
  job_ = job;
  is_complete_ = false;
}

CUresult DoneCall::follow(const DriverTable& driver, CUstream stream) noexcept {
  add(1);  // first, and without the lock in the driver, which may call at once or wait for a call
  const CUresult status = driver.launch_host_func(stream, work_has_ended, this);
  if (status != CUDA_SUCCESS) add(-1);
  return status;
}

void DoneCall::add(int calls) noexcept {
  const std::lock_guard lock(mutex_);
  open_ += calls;
}

void DoneCall::end_of_submit() noexcept {
  const std::lock_guard lock(mutex_);
  is_complete_ = true;
  tell_if_done();
}

void DoneCall::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  is_complete_ = false;
}

void DoneCall::tell_if_done() noexcept {
  if (!is_complete_ || open_ != 0 || tell_ == nullptr) return;
  told_.store(job_, std::memory_order_release);
  (*tell_)(job_);
}

void DoneCall::work_has_ended(void* data) {
  auto& call = *static_cast<DoneCall*>(data);
  // A plug-in's call may have started the driver's thread.
  const WithFloatControl usual(FloatControl::usual());
  bool is_last = false;
  {
    const std::lock_guard lock(call.mutex_);
    --call.open_;
    call.tell_if_done();
    is_last = call.tell_ == nullptr && call.open_ == 0;
  }
  if (is_last) delete &call;
}

void DoneCall::Release::operator()(DoneCall* call) const noexcept {
  bool is_last = false;
  {
    const std::lock_guard lock(call->mutex_);
    call->tell_ = nullptr;
    is_last = call->open_ == 0;
  }
  if (is_last) delete call;
}

JobFlight make_flight(const Wiring& wiring, const BufferPlan& plan,
                      const std::vector<std::shared_ptr<Lease>>& leases,
                      const DevicePorts& device_ports, const ActivationSizes& sizes,
                      const GraphOptions& options) {
  JobFlight flight;
  const auto bytes = [&](Index value) {
    return bytes_of(wiring.values[value].format, sizes.max_width, sizes.max_height);
  };
  for (const BufferPlan::Buffer& buffer : plan.buffers) {
    const std::uint64_t words = (buffer.bytes + 3) / 4;  // results are cleared by words
    flight.buffers.push_back(make_device_memory(leases[buffer.home], words * 4));
  }
  for (Index value = 0; value < wiring.values.size() && !wiring.values[value].node; ++value) {
    const std::vector<Index>& readers = wiring.values[value].readers;
    const auto& lease = leases[readers.front()];
    const bool on_device = device_ports.inputs[wiring.values[value].port];
    flight.uploads.push_back(on_device ? PinnedMemory() : make_pinned_memory(lease, bytes(value)));
    flight.uploaded.push_back(readers.size() > 1 ? make_event(lease) : Event());
  }
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    const Index value = wiring.outputs[port];
    const auto& lease = leases[*wiring.values[value].node];
    flight.downloads.push_back(
        device_ports.outputs[port] ? PinnedMemory() : make_pinned_memory(lease, bytes(value)));
  }
  if (device_ports.lease != nullptr) flight.given = make_event(device_ports.lease);
  if (options.on_done) {
    flight.done_call.reset(new DoneCall(options.on_done));
  }
  for (Index n = 0; n < wiring.nodes.size(); ++n) {
    const auto waits_for_it = [&](const WiredNode& other) {
      return std::find(other.waits_for.begin(), other.waits_for.end(), n) != other.waits_for.end();
    };
    const auto goes_to_host = [&](Index value) {
      return value != unused && wiring.values[value].goes_to_host;
    };
    const WiredNode& node = wiring.nodes[n];
    const bool is_awaited = std::any_of(wiring.nodes.begin(), wiring.nodes.end(), waits_for_it);
    const bool is_last =
        !is_awaited || std::any_of(node.outputs.begin(), node.outputs.end(), goes_to_host);
    flight.handed_over.push_back(is_awaited ? make_event(leases[n]) : Event());
    flight.ended.push_back(is_last ? make_event(leases[n]) : Event());
    // One that nobody waits for is the last to be suspected, unless a later job follows.
    const bool is_followed = is_awaited || options.jobs_in_flight > 1;
    flight.makes_marks.push_back(options.name_faults && is_followed);
  }
  flight.inputs.resize(flight.uploads.size());
  flight.outputs.resize(wiring.outputs.size());
  flight.blocks.resize(flight.inputs.size() + flight.outputs.size());
  flight.is_direct.resize(flight.blocks.size());
  const std::uint64_t mark_bytes = wiring.nodes.size() * sizeof(std::uint32_t);
  flight.marks = make_pinned_memory(leases.front(), mark_bytes);
  std::memset(flight.marks.get(), 0, mark_bytes);
  return flight;
}

}  // namespace ctxbroker::detail
