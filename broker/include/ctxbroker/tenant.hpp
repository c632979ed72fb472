// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tenant that the host opens itself, for plug-ins with a format of their own (OFX, CLAP, VST3,
/// ...) that do not speak the ctxbroker plug-in ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/driver_limits.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/guard.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/loss.hpp"
#include "ctxbroker/memory_source.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

namespace detail {
struct Access;
class Lease;
class TenantImpl;
struct LibraryImage;
struct TenantIdentity;
}  // namespace detail

/// What a tenant gets.
struct TenantOptions {
  /// The lease on every device. `automatic` leaves the choice to the policy. If the policy says
  /// nothing, the lease is green where the driver offers that, else shared.
  LeaseChoice lease{};
  /// The tenant's code uses CU_STREAM_PER_THREAD, which green contexts do not have. The lease is
  /// then not green.
  bool per_thread_streams = false;
  /// Close unloads the tenant's libraries. Otherwise they stay in the process, which is safe for
  /// libraries that leave threads or callbacks behind.
  ///
  /// Close first waits for host functions and destructors of user objects that the tenant's code
  /// gave to the driver, at most BrokerOptions::end_timeout. If the driver may still call the code
  /// after that, the libraries stay in the process, and a record with the topic "tenant" says why.
  /// The broker knows of such functions only with the gate.
  /// They also stay, with a strike, if a signal's handler or a thread of theirs is left. They stay
  /// without a strike if the constructors or destructors of another library run longer than that
  /// limit.
  bool unload_at_close = false;
  /// Device memory, in bytes, that the tenant's code may hold through its own driver calls. Beyond
  /// that, its calls return CUDA_ERROR_OUT_OF_MEMORY. This needs the gate. 0: the policy's limit,
  /// or none if the policy sets none.
  std::uint64_t driver_memory_budget = 0;
  /// The same for pinned memory, streams, events, graphs, modules and contexts.
  DriverLimits driver_limits{};
  /// The source of its memory. `automatic` leaves the choice to the policy.
  MemorySource memory = MemorySource::automatic;
  /// Pinned memory, in bytes, that its pool takes from the driver when a lease is made, and keeps.
  /// It applies only with MemorySource::pool. Without it, the pool grows when memory is allocated.
  /// 0: the policy's size, or none if the policy sets none.
  std::uint64_t pinned_ahead = 0;
  /// Called by Broker::poll once for each generation that one of the tenant's leases loses. May be
  /// empty. It is not called for a tenant that ends before the next poll.
  LossCallback on_loss{};
};

/// How Tenant::adopt loads a library. The defaults are the safest choice.
struct AdoptOptions {
  /// Resolves functions at their first call (RTLD_LAZY), and not while the library loads
  /// (RTLD_NOW). The first call of a function that is missing then ends the process.
  bool lazy = false;
  /// Lets libraries that are loaded later find the library's symbols (RTLD_GLOBAL).
  bool global = false;
};

/// A library that was loaded for a tenant. Tenant::adopt returns it. Copies are cheap. After the
/// tenant's close, symbol throws.
class CTXB_API AdoptedLibrary {
 public:
  /// The library's file, as an absolute path without links in it.
  [[nodiscard]] const std::filesystem::path& path() const& noexcept;
  [[nodiscard]] std::filesystem::path path() && { return path(); }

  /// Finds an exported function or variable. While constructors or destructors of any library run
  /// on another thread, it waits for the system's loader without a limit, as dlsym does.
  ///
  /// @param name  the symbol's name, mangled for C++.
  /// @return its address, or null when the library exports no such name. Thread-safe until the
  ///         tenant's close.
  /// @throws Error  `wrong_state` after the tenant's close.
  [[nodiscard]] void* symbol(const char* name) const;

 private:
  friend class Tenant;
  explicit AdoptedLibrary(std::shared_ptr<detail::LibraryImage> image) : image_(std::move(image)) {}
  std::shared_ptr<detail::LibraryImage> image_;
};

/// A tenant: one party whose CUDA work is kept apart from the others'. Broker::open_tenant and
/// Broker::host return it.
///
/// It has at most one lease on each device, created at its first use there, and renewed at the next
/// use after a loss. It holds the memory and the streams that it created through the functions
/// below, and the libraries that were loaded for it; close gives all of that back.
///
/// It is move-only. A moved-from tenant can only be destroyed, assigned to and closed. After close,
/// id, name, strikes, memory_bytes and report_status can still be called; the other functions throw
/// `wrong_state`. The destructor closes the tenant. It does not throw: if a thread is still
/// inside, it records an error, and the contexts stay until the process ends. Destroy the tenant
/// before the broker.
///
/// Threads: any thread may construct a Guard, and call run and the functions that say that they are
/// thread-safe. Call everything else on one thread at a time for each tenant. That may be any
/// thread, and beside all broker calls except its end.
class CTXB_API Tenant {
 public:
  Tenant(Tenant&&) noexcept;
  Tenant& operator=(Tenant&&) noexcept;
  ~Tenant();

  /// The tenant's number. Thread-safe.
  [[nodiscard]] TenantId id() const noexcept;
  /// The name that Broker::open_tenant was given, or "host". Thread-safe.
  [[nodiscard]] const std::string& name() const& noexcept;
  [[nodiscard]] std::string name() && { return name(); }

  /// Loads a library for the tenant. Its code then counts as the tenant's.
  ///
  /// The library's constructors run inside a guard, with no context current. By default, all
  /// symbols that it needs are resolved now, and its own symbols are not visible to other
  /// libraries. One library loads at a time. While the constructors or destructors of another
  /// library run on another thread, the call waits, at most for BrokerOptions::end_timeout. It does
  /// not matter which code loads or unloads that library. If a constructor begins after the call
  /// has found the loader free, the call can wait longer. Do not call adopt in the constructor of a
  /// library that other code than the broker loads: if another thread loads a library meanwhile,
  /// adopt waits until that limit.
  ///
  /// A library that is in the process already becomes the tenant's too, with the libraries that
  /// came with it and that nothing else needs. What it made with CUDA before stays the host's. If
  /// another tenant uses the library, adopt succeeds, but the library belongs to neither. Inside a
  /// guard, its calls count as the guarded tenant's. On its own threads, they count as the host's.
  /// A record with the topic "gate" says which of these happened.
  ///
  /// adopt throws if the library cannot become the tenant's. This is so if a pattern of this or
  /// another broker's policy (Policy::libraries) gives it to another tenant, or if it serves the
  /// whole process, as the C library and the driver do. After the exception, the library is in the
  /// process only if it was there before, or if its constructors left something that leads into
  /// it. Without the gate, only the patterns of this broker's policy count.
  ///
  /// A record with the topic "plugin" names libraries that this one needs and of which the process
  /// has another version.
  ///
  /// If a static constructor throws, the process ends (std::terminate) after a record and a line to
  /// standard error that name the library: the system's loader cannot go on.
  ///
  /// @param library  the file.
  /// @param options  how to load it.
  /// @return a handle of the library, which the tenant holds until close.
  /// @throws Error  `plugin_not_found` when there is no such file; `plugin_load` when the system's
  ///                loader refuses the library, the library cannot become the tenant's, or another
  ///                library holds up the loader until the limit (the text is the loader's own, says
  ///                why, or names the other library if the broker loads it); `wrong_state` after
  ///                close.
  AdoptedLibrary adopt(const std::filesystem::path& library, const AdoptOptions& options = {});

  /// Returns the lease on a device, and creates it at the first use.
  ///
  /// @param device  CUDA device ordinal.
  /// @throws Error  `no_device`, `lease_unavailable`, `out_of_memory`, `driver_call`;
  ///                `context_lost` when CUDA has ended in this process or the lease is hung;
  ///                `wrong_state` after close.
  LeaseInfo lease(int device = 0);

  /// Calls `function` inside a Guard.
  ///
  /// @param device    CUDA device ordinal.
  /// @param function  what to call, without arguments.
  /// @return what `function` returns. Its exceptions pass.
  /// @throws Error  as Guard.
  template <typename Function>
  decltype(auto) run(int device, Function&& function);

  /// Tells the broker the status that the tenant's code got from a driver call. By itself, the
  /// broker sees only its own calls, and guarded calls of the tenant's libraries.
  ///
  /// If the status is a fault, every lease of the process is `ended`. If it says that the context
  /// was destroyed, this lease is `lost`. Any other status changes nothing.
  ///
  /// @param device         CUDA device ordinal of the lease in which the call was made.
  /// @param driver_status  a CUresult.
  /// @return the lease's state; `lost` when there is no lease. Thread-safe.
  LeaseState report_status(int device, int driver_status) noexcept;

  /// Allocates device memory in the lease. DeviceMemory does the same with an owner.
  ///
  /// @param bytes   its size, at least 1.
  /// @param device  CUDA device ordinal.
  /// @return the device address (a CUdeviceptr), aligned to at least 256 bytes. The tenant holds it
  ///         until release or close.
  /// @throws Error  `invalid_argument` for 0 bytes; else as lease.
  [[nodiscard]] std::uint64_t allocate(std::uint64_t bytes, int device = 0);

  /// Gives device memory back. It first waits for the tenant's work on its other devices, because
  /// that work could use the memory. If hung work stands in the way, the memory is given back when
  /// that work ends, and counts as held until then.
  ///
  /// @param address  what allocate returned. 0 does nothing.
  /// @throws Error  `invalid_argument` when the tenant does not hold it; `driver_call` when the
  ///                driver refuses to free it: the tenant still holds it then, and can release it
  ///                again; `wrong_state` after close.
  void release(std::uint64_t address);

  /// Creates a stream in the lease, which does not synchronise with the default stream. Stream does
  /// the same with an owner.
  ///
  /// @param device  CUDA device ordinal.
  /// @return the stream. The tenant holds it until destroy_stream or close.
  /// @throws Error  as lease.
  [[nodiscard]] CUstream create_stream(int device = 0);

  /// Destroys a stream. Work in it still completes.
  ///
  /// @param stream  what create_stream returned.
  /// @throws Error  `invalid_argument` when the tenant does not hold it; `driver_call` as release;
  ///                `wrong_state` after close.
  void destroy_stream(CUstream stream);

  /// Lets kernels on `device` use the tenant's memory on `peer` by its address. Copies between
  /// devices (cuMemcpyPeerAsync, graphs) do not need it.
  ///
  /// With a shared or green lease it applies to all shared and green leases of the device, as long
  /// as one of them has it. The gate takes it back when the tenant ends; without the gate it stays.
  ///
  /// @param device  CUDA device ordinal of the kernels.
  /// @param peer    CUDA device ordinal of the memory.
  /// @throws Error  `lease_unavailable` when the devices cannot reach each other; else as lease.
  void enable_peer_access(int device, int peer);

  /// The bytes of device memory that allocate gave and that were not given back. Thread-safe.
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept;
  /// How often the tenant's code broke the rules. Thread-safe.
  [[nodiscard]] std::uint64_t strikes() const noexcept;

  /// Ends the tenant: waits for its work, at most BrokerOptions::end_timeout for each stream, and
  /// gives back everything that it holds. What hung work may still use is given back when that work
  /// ends; BrokerMetrics::put_off lists it. A second call does nothing.
  ///
  /// First, close stops threads from entering. A guard that begins meanwhile waits until close has
  /// succeeded or failed. After a successful close, guards throw `wrong_state`, and so does every
  /// other function that can throw.
  ///
  /// All handles of the host's tenant share what it holds. While there are other handles, close
  /// ends only this one. Closing the last handle ends the tenant. No other thread may use this
  /// handle during the call.
  ///
  /// @throws Error  `wrong_state` while a thread is inside one of its leases or a graph has its
  ///                ends in the tenant's memory. The tenant is then still open.
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
