// SPDX-License-Identifier: Apache-2.0
/// @file
/// The broker: what a host opens once, to run CUDA plug-ins through it.
///
/// A *tenant* is one party whose CUDA work is kept apart from the others': a plug-in library, a
/// tenant that the host opened, or the host itself. A *lease* is a tenant's right to a context on
/// one device, and a *generation* counts the contexts that it has had. A *guard* makes the lease's
/// context current on a thread. The *shield* makes the driver refuse to destroy a device's primary
/// context. The *gate* checks the driver calls of the tenants' code. A *strike* is one recorded
/// breach of the rules.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/gate.hpp"
#include "ctxbroker/host_memory.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "ctxbroker/plugin_library.hpp"
#include "ctxbroker/policy.hpp"
#include "ctxbroker/ready_contexts.hpp"
#include "ctxbroker/record.hpp"
#include "ctxbroker/tenant.hpp"
#include "ctxbroker/timeline.hpp"

namespace ctxbroker {

namespace detail {
class BrokerImpl;
struct Access;
}  // namespace detail

/// How to open a broker.
struct BrokerOptions {
  std::string host_name = "host";  ///< The host's name, for plug-ins and records.
  std::string host_version = "0";  ///< The host's version, for plug-ins.
  /// The driver. Unset: what the environment variable CTXBROKER_DRIVER names, else automatic.
  /// While a broker is open, all variables count as they were when the first one was opened.
  std::optional<DriverChoice> driver{};
  /// The software device's library file. Empty: the one beside the broker's own library.
  std::filesystem::path software_device{};
  /// Takes the broker's log. May be empty.
  RecordSink records{};
  /// How long the work of a job may take on the device. Work that takes longer is hung: the broker
  /// takes no new work for its lease. Zero: no limit. It must not be negative.
  std::chrono::milliseconds job_timeout{0};
  /// Contexts that the broker creates ahead of need. None by default.
  ReadyContexts ready{};
  /// How long deactivation and close wait for each stream that still has work. Work that takes
  /// longer is hung. The limit also applies to every call that frees or unloads something: if the
  /// driver waits longer, for anybody's work, the broker postpones the call until that work ends.
  /// And it applies to every call that makes a context or loads a module, and to a thread's wait
  /// for its way into a lease: they then end with an error. The same holds for calls that load a
  /// library while the constructors or destructors of another library run, and for calls of a
  /// plug-in while another thread is inside such a call of the same library. Zero: no limit. It
  /// must not be negative.
  std::chrono::milliseconds end_timeout{2000};
  /// What the host's users decide for plug-ins.
  Policy policy;
  /// Puts the gate between the plug-ins and the driver (docs/the_gate.md). Without it, guards and
  /// the shield are the only protection. The gate works best when it comes into the process before
  /// the driver, so the first broker of a process decides what later ones can have.
  bool use_gate = true;
  /// What the host's own tenant gets; see Broker::host.
  TenantOptions host{};
  /// Raises the shield also on each device whose primary context code of the host retains. Without
  /// it, the first lease on a device does that. It is for programs whose code the host does not
  /// know. It needs the gate.
  bool shield_host = false;
};

/// Loads plug-ins and keeps their CUDA work apart. A host opens one and keeps it until it ends.
///
/// It is move-only, and must outlive its libraries, instances, graphs and tenants. A moved-from or
/// closed broker can be destroyed, assigned to and closed. Its has_driver returns false, and every
/// other function throws `wrong_state`.
///
/// Threads: call it on the thread that opened it, or serialise the calls. Functions that say so are
/// thread-safe: any thread may call them beside all others. Jobs, guards and the calls of tenants
/// may run beside every call except close, moves and the destructor. docs/embedding.md has a table.
/// A call leaves the calling thread's context as it was, also when it throws.
class CTXB_API Broker {
 public:
  /// Loads a driver and initialises it. It creates nothing on a device. While constructors or
  /// destructors of any library run on another thread, it waits for the system's loader without a
  /// limit, as dlopen does.
  ///
  /// @return the open broker. The calling thread is its main thread.
  /// @throws Error  `invalid_argument`, which names the option; `driver_choice`, `no_driver`,
  ///                `driver_call`; `no_device` when the driver has no device.
  [[nodiscard]] static Broker open(BrokerOptions options = {});

  /// Opens a broker without a driver, for listing plug-ins on any machine. It can load and describe
  /// libraries. It cannot create instances or tenants.
  ///
  /// @throws Error  `invalid_argument`, which names the option.
  [[nodiscard]] static Broker open_without_driver(BrokerOptions options = {});

  Broker(Broker&&) noexcept;
  Broker& operator=(Broker&&) noexcept;
  /// Closes the broker. If libraries, instances, graphs or tenants are still alive, the broker
  /// records an error and keeps what they need until the process ends.
  ~Broker();

  /// Closes the broker. A second call does nothing.
  ///
  /// @throws Error  `wrong_state` while libraries, instances, graphs or tenants are alive. The
  ///                broker is then still open.
  void close();

  /// Whether the broker is open and has a driver. Thread-safe.
  [[nodiscard]] bool has_driver() const noexcept;
  /// The driver in use. It lives as long as the broker is open. Thread-safe.
  /// @throws Error  `wrong_state` without a driver.
  [[nodiscard]] const DriverInfo& driver() const&;
  [[nodiscard]] DriverInfo driver() && { return driver(); }
  /// The driver's devices, at least one, in the order of their ordinals. They live as long as the
  /// broker is open. Thread-safe.
  /// @throws Error  `wrong_state` without a driver.
  [[nodiscard]] const std::vector<DeviceInfo>& devices() const&;
  [[nodiscard]] std::vector<DeviceInfo> devices() && { return devices(); }

  /// What the gate can do in this process. Thread-safe.
  /// @throws Error  `wrong_state` when the broker is closed.
  [[nodiscard]] GateInfo gate() const;

  /// Loads a plug-in library, calls its init and checks its descriptors. If a static constructor
  /// throws, the process ends (std::terminate) with the library's name; a scan finds such a library
  /// beforehand. While another library is being loaded, it waits as Tenant::adopt does.
  ///
  /// @param path  the library's file. If it is loaded already, the call returns another handle of
  ///              it.
  /// @return a handle of the library.
  /// @throws Error  `plugin_not_found` when there is no such file; `plugin_load`, `plugin_entry`,
  ///                `plugin_version`, `plugin_init`; `wrong_state` when the broker is closed.
  [[nodiscard]] PluginLibrary load(const std::filesystem::path& path);

  /// Retains a device's primary context and raises the shield there. The first lease on the device
  /// does that too. The shield stays up until close. Thread-safe.
  ///
  /// @param device  CUDA device ordinal.
  /// @throws Error  `no_device`, `driver_call`, `out_of_memory`, `context_lost`; `wrong_state`
  ///                without a driver; `lease_unavailable` when the driver waits for work that does
  ///                not end within BrokerOptions::end_timeout.
  void use_device(int device);

  /// Tells whether a device's primary context is protected. It creates nothing on the device.
  /// Thread-safe.
  ///
  /// @param device  CUDA device ordinal.
  /// @throws Error  `no_device`; `wrong_state` without a driver.
  [[nodiscard]] ShieldInfo shield(int device) const;

  /// Creates an instance of a plug-in.
  ///
  /// @param library  a library that this broker loaded.
  /// @param plugin   the plug-in's id or short name. Empty: the library's only plug-in.
  /// @param options  the instance's device, lease and limits.
  /// @throws Error  `plugin_not_found`, `plugin_failed`, `driver_call`; `needs_gpu` when the
  ///                plug-in works on NVIDIA's driver only; `kernel_image` when the device's compute
  ///                capability is too low; `invalid_argument` for another broker's library, an
  ///                unknown lease kind or placement rule; `wrong_state` without a driver; what
  ///                Tenant::lease throws.
  [[nodiscard]] PluginInstance create(const PluginLibrary& library, std::string_view plugin,
                                      const InstanceOptions& options = {});

  /// Opens a tenant, for example for a library of a plug-in format that the broker does not know.
  /// The gate remembers each tenant until the process ends, which takes about 1 KB of host memory,
  /// and about 4 KB if the tenant adopts a library. The counters of its guarded calls take most of
  /// that. Changes of the libraries themselves take no more memory.
  ///
  /// @param name     what records and reports call it, and the id under which the policy knows it.
  ///                 A policy file takes only names that look like an id: "com.example.painter".
  /// @param options  its lease, its limits and the source of its memory.
  /// @throws Error  `invalid_argument` for an empty name, an unknown lease kind or source of
  /// memory,
  ///                or the name "host", which stands for all code that belongs to no tenant;
  ///                `wrong_state` without a driver.
  [[nodiscard]] Tenant open_tenant(std::string name, const TenantOptions& options = {});

  /// Returns a handle of the host's own tenant, for the host's own CUDA code. BrokerOptions::host
  /// says what it gets.
  ///
  /// All handles are of the same tenant, with the same leases, memory and streams. Closing the last
  /// handle ends the tenant; closing another one ends only that handle.
  ///
  /// @throws Error  `wrong_state` without a driver.
  [[nodiscard]] Tenant host();

  /// Makes host memory for pictures and blocks of audio, filled with zeros. Graphs use it without
  /// staging (see HostMemory), and WorkerGraph::lend shares it with a worker process. Budgets of
  /// plug-ins and tenants do not count it. If nothing runs on the devices, the call also
  /// unregisters memory that was given up. It works without a driver, too. Thread-safe.
  ///
  /// @param bytes  the size, at least 1. One large block is better than many small ones.
  /// @throws Error  `invalid_argument` for 0 bytes; `out_of_host_memory`, `system_limit`;
  ///                `wrong_state` when the broker is closed. If only the driver refuses the memory,
  ///                nothing is thrown: see HostMemory::is_registered.
  [[nodiscard]] HostMemory host_memory(std::size_t bytes);
  /// Registers memory that the host has already, so that graphs use it without staging. The memory
  /// stays the host's, who keeps it until HostMemory::reset has returned true. A worker process
  /// cannot share it. Thread-safe.
  ///
  /// @param memory  its first byte. Whole pages are best, because CUDA registers whole pages.
  /// @param bytes   the size, at least 1.
  /// @throws Error  `invalid_argument` for null, 0 bytes, and memory that overlaps with a block of
  ///                this broker; else as host_memory.
  [[nodiscard]] HostMemory register_memory(void* memory, std::size_t bytes);

  /// The leases in force, by tenant and device. Thread-safe.
  [[nodiscard]] std::vector<LeaseInfo> leases() const;

  /// Begins a real-time session, in which plug-ins should not delay each other's work.
  ///
  /// - The broker creates no ready contexts, because creating one delays work on the device by up
  ///   to a millisecond. It destroys no context and unloads no module on its own, and it loads no
  ///   changed file of a development module. Broker::poll frees nothing. If an allocation fails,
  ///   the broker still gives back memory that tenants' pools keep unused, but unloads no module.
  /// - The broker counts and times the calls with which a tenant holds up its neighbours:
  ///   TenantMetrics::realtime. A record of the topic "realtime" names these calls, at most once a
  ///   second for each tenant. The timeline shows them. RealtimePolicy can refuse them.
  /// - The host may still make every call, such as create, activate and Tenant::allocate. The
  ///   broker counts these calls for the tenant, too.
  ///
  /// If a ready context is being created, the call waits for it, at most for
  /// BrokerOptions::end_timeout, or 10 s on a busy machine. Calls nest. While one broker has a
  /// session open, the calls of the tenants of all brokers in the process are counted. Calls in
  /// worker processes are not. Without a driver, this and end_realtime do nothing. Thread-safe.
  void begin_realtime();
  /// Ends the session that the matching begin_realtime began. After the last one, the broker goes
  /// on with its own work. It may call the records callback on this thread, with calls that no
  /// record has named yet.
  ///
  /// @throws Error  `wrong_state` when no begin_realtime is open. Thread-safe.
  void end_realtime();

  /// Waits until the contexts that BrokerOptions::ready asks for exist on all devices in use, as
  /// far as the budget allows. It does not wait between begin_realtime and end_realtime.
  ///
  /// @return whether nothing is left to create. Thread-safe.
  bool wait_until_ready();

  /// Gives up the context behind a lease, as if it were lost. The next use creates a new one, of
  /// the next generation. It is for tests, and for hosts that want a fresh start. A job that runs
  /// meanwhile succeeds in the old context, or throws `context_lost`. The tenant keeps 2 to 5 KB of
  /// host memory for each loss until it ends, because guards may stand on the old lease.
  /// Thread-safe.
  ///
  /// @param tenant  whose lease.
  /// @param device  CUDA device ordinal.
  /// @param reason  one sentence for records.
  /// @return false when the tenant has no lease there.
  bool force_loss(TenantId tenant, int device, const std::string& reason);

  /// Unloads modules that nothing needs now. They are loaded again when they are used. The broker
  /// does this by itself when device memory is short, but never in a real-time session. If kernels
  /// run on the device, the driver waits for them, at most for BrokerOptions::end_timeout.
  ///
  /// These modules stay: those of a lease with a thread inside, with unfinished work or with an
  /// activation for real time; those with variables that kernels can write; and those with a
  /// variable whose address the plug-in has asked for.
  ///
  /// @param device  CUDA device ordinal.
  /// @return how many were unloaded. Thread-safe.
  /// @throws Error  `no_device`; `wrong_state` without a driver.
  std::size_t unload_idle_modules(int device);

  /// Does the work that belongs on the main thread. Call it regularly, when the user interface is
  /// idle or once per block. It is cheap when there is nothing to do. Other threads can run graphs
  /// meanwhile. Never call it from inside a plug-in.
  ///
  /// It may run beside jobs. An instance is told of a loss between two jobs only. The call does not
  /// wait for plug-ins: while another thread activates a plug-in, as a graph does after a loss, the
  /// plug-ins of the same library are left to the next poll.
  ///
  /// It tells plug-ins (context_lost) and tenants (TenantOptions::on_loss) about lost leases, calls
  /// the plug-ins that asked for it with ctxb_host.request_callback, and destroys private contexts
  /// that were lost and that nothing can use any more. If a tenant has allocated nothing for 10 s,
  /// it gives unused memory of the tenant's pool (MemorySource::pool) back to the device. If
  /// nothing runs on a device, it unloads the modules of instances that were destroyed, and
  /// unregisters host memory that was given up: otherwise the driver would wait for running
  /// kernels. It registers host memory that is not registered yet (see HostMemory). In a real-time
  /// session it destroys no context, unloads no module, gives no memory back and registers none.
  ///
  /// It also checks with the driver whether CUDA has ended in the process. It does not check while
  /// jobs run, because jobs find that themselves. Exceptions of TenantOptions::on_loss pass.
  void poll();

  /// Returns what every tenant used so far and holds now. It does not wait for plug-ins.
  [[nodiscard]] BrokerMetrics metrics() const;

  /// Begins to record the timeline. A process has one timeline, which holds the work of all its
  /// brokers. Recording never makes a thread wait. A new recording replaces the last one.
  ///
  /// @throws Error  `wrong_state` while a timeline is recorded; `invalid_argument` for too little
  ///                memory, or for more than the machine can allocate.
  void start_timeline(const TimelineOptions& options = {});
  /// Ends recording. What was recorded stays until the next start.
  void stop_timeline() noexcept;
  /// Ends recording and writes what was recorded to a file. After an exception the file is as it
  /// was before. If the path names a device or a pipe, the text goes there directly.
  ///
  /// @throws Error  `wrong_state` when nothing was recorded; `output_file`.
  TimelineSummary write_timeline(const std::filesystem::path& path);
  /// Ends recording and passes what was recorded to a sink.
  ///
  /// @throws Error  `wrong_state` when nothing was recorded; `invalid_argument` for an empty sink.
  ///                The sink's exceptions pass.
  TimelineSummary write_timeline(const TimelineSink& sink);

 private:
  friend struct detail::Access;
  explicit Broker(std::unique_ptr<detail::BrokerImpl> impl);
  detail::BrokerImpl& open_impl() const;  // throws Error (wrong_state) when closed
  std::unique_ptr<detail::BrokerImpl> impl_;
};

}  // namespace ctxbroker
