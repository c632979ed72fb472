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
void Graph::Impl::mark_given(JobSlot& slot, CUstream after) {
  const Lease& lease = *ends.lease;
  const ContextGuard guard(lease.target());
  CUresult status = guard.status();
  if (status == CUDA_SUCCESS) {
    status = lease.table().event_record(slot.given.get(), after);
    if (status != CUDA_ERROR_INVALID_HANDLE) ends.lease->report_status(status);
  }
  check(lease.table(), status, "cuEventRecord", lease.owner(), [] {
    return "graph: the stream that the job comes after cannot be marked; use one in the "
           "lease with the memory of the graph's ends";
  });
}

// A copy between the host's device memory and the graph's. Inside the node's guard.
void Graph::Impl::copy_end(const JobSlot& slot, Index node, CUdeviceptr to, CUdeviceptr from,
                           std::uint64_t bytes, bool to_host) {
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  if (slot.is_given) {
    must_between(node, driver.stream_wait_event(at.stream, slot.given.get(), 0),
                 "cuStreamWaitEvent", "the host's stream cannot be waited for");
  }
  CUcontext const here = at.lease->memory_context(), host = ends.lease->memory_context();
  const bool is_shared = at.lease->shares_memory_with(*ends.lease);
  const CUresult status = is_shared
                              ? driver.memcpy_dtod_async(to, from, bytes, at.stream)
                              : driver.memcpy_peer_async(to, to_host ? host : here, from,
                                                         to_host ? here : host, bytes, at.stream);
  must_between(node, status, is_shared ? "cuMemcpyDtoDAsync_v2" : "cuMemcpyPeerAsync",
               "the host's device memory cannot be copied");
}

// Uploads wait for nothing but the host's stream: their buffers are free when a job begins.
void Graph::Impl::upload(JobSlot& slot, Index node, Index value) {
  const DriverTable& driver = nodes[node].lease->table();
  CUstream const stream = nodes[node].stream;
  const std::uint64_t bytes = bytes_of(slot, value);
  const ScopedSpan span(SpanCategory::copy, "upload", nullptr, host_tenant, bytes);
  const CUdeviceptr to = slot.buffers[plan.of_value[value]].get();
  if (ends.inputs[wiring.values[value].port]) {
    copy_end(slot, node, to, device_address(slot.inputs[value]), bytes, false);
  } else {
    must(node, driver.memcpy_htod_async(to, slot.source(value), bytes, stream),
         "cuMemcpyHtoDAsync_v2", "the samples cannot be uploaded");
  }
  if (slot.uploaded[value]) {
    must(node, driver.event_record(slot.uploaded[value].get(), stream), "cuEventRecord",
         "the end of the upload cannot be marked");
  }
}

void Graph::Impl::download(JobSlot& slot, Index node) {
  const Node& at = nodes[node];
  for (Index end = 0; end < wiring.outputs.size(); ++end) {
    const Index value = wiring.outputs[end];
    if (wiring.values[value].node != Maybe(node)) continue;
    const Layout part = given_part(slot, value);
    const std::uint64_t row = given_row_bytes(slot, value), rows = part.region.height;
    const std::uint64_t bytes = (rows - 1) * part.pitch + row;
    const ScopedSpan span(SpanCategory::copy, "download", nullptr, host_tenant, bytes);
    const CUdeviceptr from = delayed_output(slot, end);
    if (ends.outputs[end]) {
      const CUdeviceptr to = device_address(slot.outputs[end]);
      const bool is_one = part.pitch == row;
      for (std::uint64_t y = 0; y < (is_one ? 1 : rows); ++y) {
        copy_end(slot, node, to + y * row, from + y * part.pitch, is_one ? bytes : row, true);
      }
      continue;
    }
    must(node, at.lease->table().memcpy_dtoh_async(slot.target(end), from, bytes, at.stream),
         "cuMemcpyDtoHAsync_v2", "the samples cannot be downloaded");
  }
}

// The calling thread does not wait.
void Graph::Impl::follow(std::uint64_t job, CUstream stream) {
  must_be_submitted(job);
  if (ends.tenant == nullptr || stream == nullptr) {
    throw Error(ErrorKind::invalid_argument,
                stream == nullptr ? "graph: the stream is null"
                                  : "graph: no end of it is on the device, so that no stream needs "
                                    "to wait for it; use finish");
  }
  const JobSlot* const slot = slot_of(job);
  if (job <= finished || slot == nullptr) return;
  const Lease& lease = *ends.lease;
  const ContextGuard guard(lease.target());
  check(lease.table(), guard.status(), "cuCtxPushCurrent_v2", lease.owner(),
        [] { return "graph: the lease of its ends cannot be entered"; });
  for (Index node = 0; node < nodes.size(); ++node) {
    if (!slot->ended[node]) continue;
    check(lease.table(), lease.table().stream_wait_event(stream, slot->ended[node].get(), 0),
          "cuStreamWaitEvent", lease.owner(),
          [] { return "graph: the host's stream cannot wait for the job"; });
  }
}

}  // namespace ctxbroker
