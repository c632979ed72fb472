// SPDX-License-Identifier: Apache-2.0
#include "context/resources.hpp"

#include <sys/mman.h>

#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context/failed_work.hpp"
#include "context/open_captures.hpp"

namespace ctxbroker::detail {
namespace {

// Makes one resource inside the lease, by `make(handle*)`. The Resource takes `rest` beside the
// handle, and `make` may set it.
template <typename Resource, typename Handle, typename Make, typename... Rest>
Resource made(const std::shared_ptr<Lease>& lease, const char* call, const std::string& what,
              Make&& make, const Rest&... rest) {
  Handle handle{};
  const CUresult status =
      lease->report_status(guarded(lease->target(), {}, [&] { return make(&handle); }));
  if (status == no_slot) throw lease->entry_error(status, "cannot make " + what);
  check(lease->table(), status, call, lease->owner(), [&] { return "cannot make " + what; });
  return Resource(lease, handle, rest...);
}

// Not ordered with the legacy default stream, which plug-ins of the same context may use.
CUresult new_stream(const Lease& lease, CUstream* stream) noexcept {
  return lease.table().stream_create(stream, CU_STREAM_NON_BLOCKING);
}

// Makes a stream or an event by `make(lease, handle*)`. The driver makes none in a context in which
// it loads a module, and that waits for work. `end` ends what is made too late. `what`: "a stream".
template <typename Handle, typename Make>
CUresult make_in_time(const std::shared_ptr<Lease>& lease, const char* call, const char* what,
                      Handle* out, Make make, CUresult (*DriverTable::*end)(Handle)) {
  if (!HungWork::is_anything_in_the_making()) return make(*lease, out);
  const auto apart = std::make_shared<Handle>();
  MakeRequest request;
  request.owner = lease->tenant().lasting_name;
  request.is_light = true;
  request.perform = [lease, apart, make] {
    return call_in(lease->table(), lease->context(), [&] { return make(*lease, apart.get()); });
  };
  request.undo = [lease, apart, end] {
    call_in(lease->table(), lease->context(), [&] { return (lease->table().*end)(*apart); });
  };
  const auto status = lease->family()->make(std::move(request));
  if (!status) {
    throw Error(ErrorKind::lease_unavailable,
                std::string(what) + " cannot be made: " + lease->family()->why_not_made() +
                    ", and the driver makes none while it loads a module, which waits for that "
                    "work; try again later",
                {.call = call,
                 .status = CUDA_ERROR_NOT_READY,
                 .status_name = "CUDA_ERROR_NOT_READY",
                 .device = lease->device_ordinal(),
                 .tenant = lease->tenant().name});
  }
  *out = *apart;
  return *status;
}

}  // namespace

Stream create_stream(const std::shared_ptr<Lease>& lease) {
  constexpr const char* call = "cuStreamCreate";
  return made<Stream, CUstream>(lease, call, "a stream", [&](CUstream* stream) {
    const CUresult status =
        make_in_time(lease, call, "a stream", stream, new_stream, &DriverTable::stream_destroy);
    if (status == CUDA_SUCCESS) forget_failed_work(*stream);
    return status;
  });
}

namespace {

Event made_event(const std::shared_ptr<Lease>& lease, unsigned int flags) {
  constexpr const char* call = "cuEventCreate";
  const auto new_event = [flags](const Lease& in, CUevent* event) noexcept {
    return in.table().event_create(event, flags);
  };
  return made<Event, CUevent>(lease, call, "an event", [&](CUevent* event) {
    return make_in_time(lease, call, "an event", event, new_event, &DriverTable::event_destroy);
  });
}

}  // namespace

Event make_event(const std::shared_ptr<Lease>& lease) {
  return made_event(lease, CU_EVENT_DISABLE_TIMING);
}

Event make_timing_event(const std::shared_ptr<Lease>& lease) {
  return made_event(lease, CU_EVENT_DEFAULT);
}

DeviceMemory make_device_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  std::shared_ptr<MemoryStore> store;
  return made<DeviceMemory, CUdeviceptr>(
      lease, "cuMemAlloc_v2", "a device buffer of " + std::to_string(bytes) + " bytes",
      [&](CUdeviceptr* address) { return take_device_memory(*lease, bytes, address, &store); },
      bytes, store);
}

namespace {

// Calls take(). If there is too little memory, asks others to free some and tries again.
template <typename Take>
CUresult take_with_relief(const Lease& lease, Take&& take) noexcept {
  const CUresult status = take();
  return status == CUDA_ERROR_OUT_OF_MEMORY && lease.device().relieve() ? take() : status;
}

}  // namespace

CUresult take_device_memory(Lease& lease, std::uint64_t bytes, CUdeviceptr* address,
                            std::shared_ptr<MemoryStore>* store) noexcept {
  // A store waits for its own stream, and a thread that captures may not wait.
  *store = OpenCaptures::all().is_open_here() ? nullptr : lease.memory_store();
  return take_with_relief(lease, [&] {
    return *store != nullptr ? (*store)->allocate(address, bytes)
                             : lease.table().mem_alloc(address, bytes);
  });
}

namespace {

constinit std::atomic<CoveredObserver> covered_observer{nullptr};

void tell_of_covered(const void* pages, std::uint64_t bytes, bool fresh) noexcept {
  const CoveredObserver observer = covered_observer.load(std::memory_order_acquire);
  if (observer != nullptr) observer(pages, bytes, fresh);
}

// Makes pinned memory of the host by `make(handle*)`.
template <typename Memory, typename Make, typename... Store>
Memory pinned(const std::shared_ptr<Lease>& lease, const char* call, std::uint64_t bytes,
              Make&& make, const Store&... store) {
  try {
    return made<Memory, void*>(lease, call,
                               "a pinned host buffer of " + std::to_string(bytes) + " bytes",
                               std::forward<Make>(make), bytes, store...);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    // It is not the device that has no more memory.
    throw Error(ErrorKind::out_of_host_memory, error.message(), error.origin());
  }
}

template <typename Memory>
Memory registered(const std::shared_ptr<Lease>& lease, void* pages, std::uint64_t bytes,
                  CUresult* status) {
  return pinned<Memory>(lease, "cuMemHostRegister_v2", bytes, [&](void** handle) {
    *handle = pages;
    *status = lease->table().mem_host_register(pages, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    return *status;
  });
}

// Returns nothing if the driver makes no such memory. This is no shortage of memory.
std::optional<PinnedMemory> stored(const std::shared_ptr<Lease>& lease,
                                   const std::shared_ptr<MemoryStore>& store, std::uint64_t bytes) {
  CUresult status = CUDA_SUCCESS;
  try {
    return pinned<PinnedMemory>(
        lease, "cuMemCreate", bytes,
        [&](void** handle) {
          CUdeviceptr address = 0;
          status = take_with_relief(*lease, [&] { return store->allocate(&address, bytes); });
          *handle = reinterpret_cast<void*>(address);
          return status;
        },
        store);
  } catch (const Error&) {
    if (status != CUDA_ERROR_NOT_SUPPORTED && status != CUDA_ERROR_MAP_FAILED) throw;
    return std::nullopt;
  }
}

// Pages that are kept for a while, so that the system gives others.
struct Covered {
  std::vector<void*> all;
  std::uint64_t bytes;
  ~Covered() {
    for (void* const pages : all) munmap(pages, bytes);
  }
};

}  // namespace

void observe_covered_memory(CoveredObserver observer) noexcept {
  covered_observer.store(observer, std::memory_order_release);
}

PinnedMemory make_pinned_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  if (!OpenCaptures::all().is_open_here()) {
    const auto store = lease->pinned_store();
    auto memory = store != nullptr ? stored(lease, store, bytes) : std::nullopt;
    if (memory) return *std::move(memory);
  }
  constexpr std::size_t most_tries = 256;
  Covered covered{{}, bytes};
  for (;;) {
    covered.all.reserve(covered.all.size() + 1);
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    CUresult status = CUDA_SUCCESS;
    try {
      return registered<PinnedMemory>(lease, pages, bytes, &status);
    } catch (...) {
      covered.all.push_back(pages);
      const bool is_covered = status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
      if (is_covered) tell_of_covered(pages, bytes, true);
      if (!is_covered || covered.all.size() == most_tries) throw;
    }
  }
}

RegisteredMemory register_memory(const std::shared_ptr<Lease>& lease, void* pages,
                                 std::uint64_t bytes) {
  CUresult status = CUDA_SUCCESS;
  try {
    return registered<RegisteredMemory>(lease, pages, bytes, &status);
  } catch (...) {
    if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) tell_of_covered(pages, bytes, false);
    throw;
  }
}

// A context that has ended may still have copies on their way, and the driver may still know the
// address. So the address stays taken then; the memory goes.
void unmap_pages(void* pages, std::uint64_t bytes, CUresult unregistered) noexcept {
  if (unregistered == CUDA_SUCCESS) {
    munmap(pages, bytes);
  } else {
    madvise(pages, bytes, MADV_DONTNEED);
  }
}

}  // namespace ctxbroker::detail
