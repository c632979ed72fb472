// The broker: what a host opens once, to load CUDA plug-ins through it.
#pragma once

#include <chrono>
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

struct BrokerOptions {
  std::string host_name = "host";  // shown to plug-ins and in records
  std::string host_version = "0";
  std::optional<DriverChoice> driver{};     // unset: CTXBROKER_DRIVER, and without it automatic
  std::filesystem::path software_device{};  // its library file; empty: beside the broker's own
  RecordSink records{};                     // may be empty
  // Work on the device that takes longer than this is taken for work that never ends: its lease
  // becomes a zombie. Zero: a job may take for ever.
  std::chrono::milliseconds job_timeout{0};
  ReadyContexts ready{};  // contexts made ahead; none unless asked for
  // The same for work that is left when an activation or a tenant ends, for each of its streams.
  std::chrono::milliseconds end_timeout{2000};
  Policy policy;  // what InstanceOptions leave open
  // Whether the gate stands between plug-ins and the driver (docs/guarded_functions.md). Without it
  // guards and shield are left. The first broker that a process opens decides what can be had: the
  // gate has to be there before the driver.
  bool use_gate = true;
  TenantOptions host{};  // of the host's own tenant: Broker::host
};

// Move-only. [main] thread, or serialised with it. It must outlive its libraries, instances and
// chains; close refuses (wrong_state) while any is alive.
class CTXB_API Broker {
 public:
  // Loads the driver and initialises it; touches no device. Throws Error: driver_choice,
  // no_driver, no_device (the driver has none), driver_call.
  static Broker open(BrokerOptions options = {});

  // A broker without a driver: libraries can be loaded and described, nothing can be created.
  // For listing plug-ins on any machine.
  static Broker open_without_driver(BrokerOptions options = {});

  Broker(Broker&&) noexcept;
  Broker& operator=(Broker&&) noexcept;
  // Closes; what is still alive is recorded as an error and left to the process's end.
  ~Broker();

  void close();

  bool has_driver() const noexcept;
  const DriverInfo& driver() const;                // wrong_state without a driver
  const std::vector<DeviceInfo>& devices() const;  // likewise; never empty otherwise

  GateInfo gate() const;  // wrong_state when closed; never in force without a driver

  // Loads one library, reads its entry, calls its init, checks its descriptors. The same file again
  // gives the same tenant. Throws Error: plugin_load, plugin_entry, plugin_version, plugin_init.
  PluginLibrary load(const std::filesystem::path& path);

  // Retains a device's primary context and raises the shield there now, which otherwise happens
  // with the first lease. Until close. Any thread. Throws Error: no_device, driver_call,
  // out_of_memory, context_lost.
  void use_device(int device);
  // Any thread; touches no device. Throws Error: no_device.
  ShieldInfo shield(int device) const;

  // Creates an instance of a plug-in, named by its full id or short name. Throws Error:
  // plugin_not_found, no_device, plugin_failed, driver_call, needs_gpu for one that works on
  // NVIDIA's driver only, and kernel_image or no_device when the device's compute capability is
  // below what the plug-in needs.
  PluginInstance create(const PluginLibrary& library, std::string_view plugin,
                        const InstanceOptions& options = {});

  // A tenant of the host's own making: for plug-ins that do not speak the plug-in ABI. `name` is
  // for people, in records and reports, and the id under which the policy knows it (in a policy
  // file that has to look like an id, "com.example.painter"). Throws Error: wrong_state (no
  // driver), invalid_argument (empty).
  Tenant open_tenant(std::string name, const TenantOptions& options = {});
  // The host itself: tenant 0, with leases like anyone, as BrokerOptions::host asks for. All
  // handles that it returns are of the same tenant, whose leases, memory and streams last until the
  // last of them ends. Throws Error: wrong_state (no driver).
  [[nodiscard]] Tenant host();

  // The leases in force. Any thread.
  std::vector<LeaseInfo> leases() const;

  // Between the two nothing is made in the background: making a context stalls work on the device
  // for up to a millisecond. Nested; begin waits for what is being made now. Any thread.
  void begin_realtime();
  void end_realtime();
  // Waits until the contexts that BrokerOptions::ready asks for stand, on the devices in use and as
  // far as the budget goes; true at once where no device is in use. Between begin_realtime and
  // end_realtime it does not wait: false where something is still to be made.
  bool wait_until_ready();

  // Gives up the life of the context behind a lease, as if it were lost; the next use makes another
  // one, of the next generation. For tests, and for hosts that want a fresh start. False when the
  // tenant has no lease there. Any thread.
  bool force_loss(TenantId tenant, int device, const std::string& reason);

  // Unloads the modules that no work needs now; they come back when they are used. Left alone are
  // leases with a guard entered or work that is not done, plug-ins that work in real time, and
  // modules that remember something in their variables. Done by itself when an allocation on the
  // device fails. How many were unloaded. Any thread. Throws Error: no_device.
  std::size_t unload_idle_modules(int device);

  // Tells plug-ins whose context is lost, and tenants (TenantOptions::on_loss), answers what
  // plug-ins asked for with ctxb_host.request_callback, and ends private contexts that were lost
  // and that nothing can use any more. For the host's main thread, now and then (a GUI's idle time,
  // once per block); cheap when nobody asked. Not from inside a plug-in.
  void poll();

  // What every tenant used so far and holds now.
  BrokerMetrics metrics() const;

  // The timeline: what happens between start and stop, on every thread. There is one for the
  // process: with two brokers open it holds the work of both, whoever started it. Recording never
  // makes a thread wait. Throws Error: wrong_state while one is recorded, invalid_argument for too
  // little memory.
  void start_timeline(const TimelineOptions& options = {});
  void stop_timeline() noexcept;  // what was recorded stays until the next start
  // Stops, and writes what was recorded: to a file, complete or not at all, or to a sink. Throws
  // Error: wrong_state when nothing was ever recorded, output_file; and what the sink throws.
  TimelineSummary write_timeline(const std::filesystem::path& path);
  TimelineSummary write_timeline(const TimelineSink& sink);

 private:
  friend struct detail::Access;
  explicit Broker(std::unique_ptr<detail::BrokerImpl> impl);
  detail::BrokerImpl& open_impl() const;  // throws Error (wrong_state) when closed
  std::unique_ptr<detail::BrokerImpl> impl_;
};

}  // namespace ctxbroker
