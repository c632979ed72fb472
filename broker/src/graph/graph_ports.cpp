// SPDX-License-Identifier: Apache-2.0
// Graph: what a job takes from the host and gives it.
#include <string>

#include "ctxbroker/error.hpp"
#include "graph/graph_impl.hpp"
#include "observe/span.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

CUdeviceptr device_address(const void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

// The host's memory may be used after the work that is in its stream now. The stream is the host's,
// so a wrong one says nothing about the lease.
void Graph::Impl::mark_given(JobFlight& flight, CUstream after) {
  const Lease& lease = *device_ports.lease;
  const ContextGuard guard(lease.target());
  CUresult status = guard.status();
  if (status == no_slot) {
    throw lease.entry_error(status, "graph: the lease of its ports cannot be entered");
  }
  if (status == CUDA_SUCCESS) {
    status = lease.table().event_record(flight.given.get(), after);
    if (status != CUDA_ERROR_INVALID_HANDLE) device_ports.lease->report_status(status);
  }
  check(lease.table(), status, "cuEventRecord", lease.owner(), [] {
    return "graph: the stream that the job comes after cannot be marked; use one in the "
           "lease with the memory of the graph's ports";
  });
}

// A copy between the host's device memory and the graph's. Inside the node's guard.
void Graph::Impl::copy_end(const JobFlight& flight, Index node, CUdeviceptr to, CUdeviceptr from,
                           std::uint64_t bytes, bool to_host) {
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  if (flight.is_given) {
    check_call_between(node, driver.stream_wait_event(at.stream, flight.given.get(), 0),
                       "cuStreamWaitEvent", "the host's stream cannot be waited for");
  }
  CUcontext const here = at.lease->memory_context(), host = device_ports.lease->memory_context();
  const bool is_shared = at.lease->shares_memory_with(*device_ports.lease);
  const CUresult status = is_shared
                              ? driver.memcpy_dtod_async(to, from, bytes, at.stream)
                              : driver.memcpy_peer_async(to, to_host ? host : here, from,
                                                         to_host ? here : host, bytes, at.stream);
  check_call_between(node, status, is_shared ? "cuMemcpyDtoDAsync_v2" : "cuMemcpyPeerAsync",
                     "the host's device memory cannot be copied");
}

// Uploads wait for nothing but the host's stream: their buffers are free when a job begins.
void Graph::Impl::upload(JobFlight& flight, Index node, Index value) {
  const DriverTable& driver = nodes[node].lease->table();
  CUstream const stream = nodes[node].stream;
  const std::uint64_t bytes = bytes_of(flight, value);
  const ScopedSpan span(SpanCategory::copy, "upload", nullptr, host_tenant, bytes);
  const CUdeviceptr to = flight.buffers[plan.of_value[value]].get();
  if (device_ports.inputs[wiring.values[value].port]) {
    copy_end(flight, node, to, device_address(flight.inputs[value]), bytes, false);
  } else {
    check_call(node, driver.memcpy_htod_async(to, flight.source(value), bytes, stream),
               "cuMemcpyHtoDAsync_v2", "the samples cannot be uploaded");
  }
  if (flight.uploaded[value]) {
    check_call(node, driver.event_record(flight.uploaded[value].get(), stream), "cuEventRecord",
               "the end of the upload cannot be marked");
  }
}

void Graph::Impl::download(JobFlight& flight, Index node) {
  const Node& at = nodes[node];
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    const Index value = wiring.outputs[port];
    if (wiring.values[value].node != Maybe(node)) continue;
    const Layout part = given_part(flight, value);
    const std::uint64_t row = given_row_bytes(flight, value), rows = part.region.height;
    const std::uint64_t bytes = (rows - 1) * part.pitch + row;
    const ScopedSpan span(SpanCategory::copy, "download", nullptr, host_tenant, bytes);
    const CUdeviceptr from = delayed_output(flight, port);
    if (device_ports.outputs[port]) {
      const CUdeviceptr to = device_address(flight.outputs[port]);
      const bool is_one = part.pitch == row;
      for (std::uint64_t y = 0; y < (is_one ? 1 : rows); ++y) {
        copy_end(flight, node, to + y * row, from + y * part.pitch, is_one ? bytes : row, true);
      }
      continue;
    }
    check_call(node,
               at.lease->table().memcpy_dtoh_async(flight.target(port), from, bytes, at.stream),
               "cuMemcpyDtoHAsync_v2", "the samples cannot be downloaded");
  }
}

// The calling thread does not wait.
void Graph::Impl::follow(std::uint64_t job, CUstream stream) {
  check_submitted(job);
  if (device_ports.tenant == nullptr || stream == nullptr) {
    throw Error(ErrorKind::invalid_argument,
                stream == nullptr
                    ? "graph: the stream is null"
                    : "graph: no port of it is on the device, so that no stream needs "
                      "to wait for it; use finish");
  }
  const JobFlight* const flight = flight_of(job);
  if (job <= finished || flight == nullptr) return;
  const Lease& lease = *device_ports.lease;
  const ContextGuard guard(lease.target());
  if (guard.status() != CUDA_SUCCESS) {
    throw lease.entry_error(guard.status(), "graph: the lease of its ports cannot be entered");
  }
  for (Index node = 0; node < nodes.size(); ++node) {
    if (!flight->ended[node]) continue;
    check(lease.table(), lease.table().stream_wait_event(stream, flight->ended[node].get(), 0),
          "cuStreamWaitEvent", lease.owner(),
          [] { return "graph: the host's stream cannot wait for the job"; });
  }
}

}  // namespace ctxbroker
