#include "context/resources.hpp"

#include <string>

namespace ctxbroker::detail {
namespace {

// One of a kind, made inside the lease by `make(handle*)`.
template <typename Resource, typename Handle, typename Make>
Resource made(const std::shared_ptr<Lease>& lease, const char* call, const std::string& what,
              Make&& make) {
  Handle handle{};
  const CUresult status = lease->note(guarded(lease->target(), {}, [&] { return make(&handle); }));
  check(lease->table(), status, call, lease->owner(), [&] { return "cannot make " + what; });
  return Resource(lease, handle);
}

}  // namespace

void report_failed_end(Lease& lease, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (loses_context(lease.note(status))) return;  // said once, for the lease
  const TenantIdentity& tenant = lease.tenant();
  try {
    tenant.recorder->record(
        Severity::warning, tenant.id, tenant.name, "driver",
        "a resource could not be given back: " + status_text(lease.table(), status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): called by destructors
  }
}

Stream make_stream(const std::shared_ptr<Lease>& lease) {
  // Not ordered with the legacy default stream, which plug-ins of the same context may use.
  return made<Stream, CUstream>(lease, "cuStreamCreate", "a stream", [&](CUstream* stream) {
    return lease->table().stream_create(stream, CU_STREAM_NON_BLOCKING);
  });
}

Event make_timing_event(const std::shared_ptr<Lease>& lease) {
  return made<Event, CUevent>(lease, "cuEventCreate", "an event", [&](CUevent* event) {
    return lease->table().event_create(event, CU_EVENT_DEFAULT);
  });
}

DeviceMemory make_device_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  return made<DeviceMemory, CUdeviceptr>(
      lease, "cuMemAlloc_v2", "a device buffer of " + std::to_string(bytes) + " bytes",
      [&](CUdeviceptr* address) { return lease->table().mem_alloc(address, bytes); });
}

PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  return made<PinnedMemory, void*>(
      lease, "cuMemAllocHost_v2", "a pinned host buffer of " + std::to_string(bytes) + " bytes",
      [&](void** address) { return lease->table().mem_alloc_host(address, bytes); });
}

}  // namespace ctxbroker::detail
