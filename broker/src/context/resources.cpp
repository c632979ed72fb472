#include "context/resources.hpp"

#include <sys/mman.h>

#include <new>
#include <string>

namespace ctxbroker::detail {
namespace {

// One of a kind, made inside the lease by `make(handle*)`.
template <typename Resource, typename Handle, typename Make>
Resource made(const std::shared_ptr<Lease>& lease, const char* call, const std::string& what,
              Make&& make, std::uint64_t bytes = 0) {
  Handle handle{};
  const CUresult status =
      lease->report_status(guarded(lease->target(), {}, [&] { return make(&handle); }));
  check(lease->table(), status, call, lease->owner(), [&] { return "cannot make " + what; });
  return Resource(lease, handle, bytes);
}

}  // namespace

void report_failed_end(Lease& lease, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (loses_context(status)) {  // said once, for the lease
    lease.report_status(status);
    return;
  }
  lease.tenant().log(Severity::warning, "driver", [&] {
    return "a resource could not be given back: " + status_text(lease.table(), status);
  });
}

Stream create_stream(const std::shared_ptr<Lease>& lease) {
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
      [&](CUdeviceptr* address) {
        const DriverTable& driver = lease->table();
        const CUresult status = driver.mem_alloc(address, bytes);
        if (status != CUDA_ERROR_OUT_OF_MEMORY || !lease->device().relieve()) return status;
        return driver.mem_alloc(address, bytes);
      },
      bytes);
}

PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  return {lease, bytes};
}

PinnedMemory::PinnedMemory(std::shared_ptr<Lease> lease, std::uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  const CUresult status = lease->report_status(guarded(lease->target(), {}, [&] {
    return lease->table().mem_host_register(pages, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  }));
  if (status != CUDA_SUCCESS) {
    munmap(pages, bytes);
    throw driver_error(lease->table(), status, "cuMemHostRegister_v2",
                       "cannot make a pinned host buffer of " + std::to_string(bytes) + " bytes",
                       lease->owner());
  }
  lease->holdings().allocations.fetch_add(1, std::memory_order_relaxed);
  lease_ = std::move(lease);
  pages_ = pages;
  bytes_ = bytes;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : lease_(std::move(other.lease_)),
      pages_(std::exchange(other.pages_, nullptr)),
      bytes_(other.bytes_) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this != &other) {
    reset();
    lease_ = std::move(other.lease_);
    pages_ = std::exchange(other.pages_, nullptr);
    bytes_ = other.bytes_;
  }
  return *this;
}

// A context that has ended may still have copies on their way, and the driver may still know the
// address. So the address stays taken then; the memory goes.
void PinnedMemory::reset() noexcept {
  if (pages_ == nullptr) return;
  try {
    lease_->give_back(
        {Home::memory, "pinned host memory", 0, true, false,
         [lease = lease_, pages = pages_] { return lease->table().mem_host_unregister(pages); },
         [lease = lease_, pages = pages_, bytes = bytes_](CUresult status) {
           if (status == CUDA_SUCCESS) {
             munmap(pages, bytes);
           } else {
             madvise(pages, bytes, MADV_DONTNEED);
           }
           lease->holdings().allocations.fetch_sub(1, std::memory_order_relaxed);
           report_failed_end(*lease, status);
         }});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it stays, and counted
  }
  pages_ = nullptr;
  lease_.reset();
}

}  // namespace ctxbroker::detail
