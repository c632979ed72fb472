// A tenant opened by the host itself: for hosts whose plug-ins have a format of their own (OFX,
// CLAP, VST3, ...) and do not speak the ctxbroker plug-in ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/guard.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/loss.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

namespace detail {
struct Access;
class Lease;
class TenantImpl;
struct LibraryImage;
struct TenantIdentity;
}  // namespace detail

struct TenantOptions {
  LeaseChoice lease{};              // automatic: what the policy says, else green
  bool per_thread_streams = false;  // its code uses CU_STREAM_PER_THREAD: no green lease then
  bool unload_at_close = false;     // its libraries leave the process with it; else they stay
  // Device memory, in bytes, that its code may hold through the driver (the gate counts it): beyond
  // it is CUDA_ERROR_OUT_OF_MEMORY. 0: as the policy says, else no limit.
  std::uint64_t driver_memory_budget = 0;
  LossCallback on_loss{};  // may be empty
};

// A library that was loaded for a tenant. Copies are cheap; all are dead after the tenant's close.
class CTXB_API AdoptedLibrary {
 public:
  const std::filesystem::path& path() const noexcept;
  // Null when it exports none of that name. Throws Error (wrong_state) after the tenant's close.
  void* symbol(const char* name) const;

 private:
  friend class Tenant;
  explicit AdoptedLibrary(std::shared_ptr<detail::LibraryImage> image) : image_(std::move(image)) {}
  std::shared_ptr<detail::LibraryImage> image_;
};

// Any thread may enter, and any thread may close it meanwhile; all else on one thread at a time.
// Move-only. Destroying it closes it, and records what stands in the way instead of throwing.
class CTXB_API Tenant {
 public:
  Tenant(Tenant&&) noexcept;
  Tenant& operator=(Tenant&&) noexcept;
  ~Tenant();

  TenantId id() const noexcept;
  const std::string& name() const noexcept;

  // Loads a library, its constructors guarded, with every symbol resolved and none given away.
  // Throws Error (plugin_load) with the loader's own text.
  AdoptedLibrary adopt(const std::filesystem::path& library);

  // The lease on a device; made at its first use. Throws Error: no_device, lease_unavailable,
  // out_of_memory, context_lost, driver_call.
  LeaseInfo lease(int device = 0);

  // Makes the lease's context current on the calling thread while `function` runs, and undoes all
  // that it did to the thread's context stack and capture mode. Returns what it returns; exceptions
  // pass. Throws as Guard.
  template <typename Function>
  decltype(auto) run(int device, Function&& function);

  // Tells the broker what a driver call of the code inside returned (a CUresult): of calls that are
  // not its own it sees nothing. A fault ends every lease of the process, and is recorded; a
  // context that was destroyed loses this lease. Returns the lease's state: `lost` after close, and
  // where there is none yet. Any thread.
  LeaseState report_status(int driver_status, int device = 0) noexcept;

  // Device memory (addresses) and streams of the lease, entered in the tenant's ledger: what is not
  // given back is given back at close. Memory of a tenant on several devices is given back when
  // what the tenant has under way on the others is done; where that does not end (a zombie), it
  // stays until the process ends. Throws as lease. Giving back anything else than what the same
  // tenant holds is an Error (invalid_argument).
  std::uint64_t allocate(std::uint64_t bytes, int device = 0);
  void release(std::uint64_t address);
  CUstream create_stream(int device = 0);
  void destroy_stream(CUstream stream);

  // Lets kernels on `device` use memory that the tenant has on `peer` by its address, until the
  // tenant's end where the gate is in force. With a shared or green lease that holds for the
  // device's other shared and green leases too, as long as one of them has it. Copies between
  // devices (cuMemcpyPeerAsync, chains) need none of it. Throws as lease; lease_unavailable where
  // the devices cannot reach each other.
  void enable_peer_access(int device, int peer);

  std::uint64_t memory_bytes() const noexcept;  // held now
  std::uint64_t strikes() const noexcept;

  // Ends everything the tenant holds. Where its work on one device does not end, all that it has on
  // the others stays until the process ends. First it lets no thread in any more; when a thread is
  // inside it throws Error (wrong_state), and the tenant stays open. Guards that begin meanwhile wait
  // for that decision. After close, guards and all functions that can throw, throw Error
  // (wrong_state).
  void close();

 private:
  friend class Broker;
  friend class Guard;
  friend struct detail::Access;
  explicit Tenant(std::shared_ptr<detail::TenantImpl> impl);
  std::shared_ptr<detail::TenantImpl> impl_;                // null once moved from
  std::shared_ptr<const detail::TenantIdentity> identity_;  // for good
};

template <typename Function>
decltype(auto) Tenant::run(int device, Function&& function) {
  const Guard guard(*this, device, "run");
  return std::forward<Function>(function)();
}

}  // namespace ctxbroker
