// One created object of a plug-in, in its lease. Work goes through it by way of a Chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/placement.hpp"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker {

namespace detail {
class Instance;
struct Access;
}  // namespace detail

struct InstanceOptions {
  // A device's number or a rule. Unset: as the policy says, else with the tenant's other instances,
  // else device 0.
  std::optional<Placement> device{};
  LeaseChoice lease{};  // automatic: what the policy or the descriptors say, else green
  // Bytes the instance may allocate; 0: no limit; unset: as the policy says, else no limit.
  std::optional<std::uint64_t> memory_budget{};
  // Each job's work is captured and launched as one graph, which costs the device less where a job
  // is many small kernels. The plug-in's process is called for every job as without it. A plug-in
  // whose work cannot be captured (it waits, or allocates, in process) goes on without: that is
  // recorded once for each activation, and the job in which it was found out is given to the
  // plug-in twice, the second time as a discontinuity. Driver and host allocate in process then:
  // not for real time.
  bool job_graphs = false;
};

// The largest jobs an activation must serve.
struct ActivationSizes {
  std::uint32_t max_width = 1;   // pixels in a row, or frames in a block
  std::uint32_t max_height = 1;  // rows, or channels
  double sample_rate = 0;        // Hz; 0 for images
  bool realtime = false;
};

// Move-only. [main] thread, or serialised with it. Destroying it deactivates and destroys the
// plug-in's object; errors there are recorded, never thrown.
class CTXB_API PluginInstance {
 public:
  PluginInstance(PluginInstance&&) noexcept;
  PluginInstance& operator=(PluginInstance&&) noexcept;
  ~PluginInstance();

  const PluginDescription& description() const noexcept;
  LeaseInfo lease() const;
  Metrics metrics() const;

  // Throws Error: unknown_parameter, parameter_value; wrong_state for a parameter that is not
  // automatable while the instance is active.
  void set_parameter(std::string_view id, double value);
  double parameter(std::string_view id) const;

  // Loads the plug-in's modules into the lease and lets the plug-in allocate. Active already:
  // wrong_state. Throws Error; the instance is then not active and holds nothing.
  void activate(const ActivationSizes& sizes);
  // Waits for the device, lets the plug-in give back, takes back what it forgot (and records it).
  // Does nothing when not active.
  void deactivate();
  bool active() const noexcept;

  // While active: frames of delay, and of ringing on after the input ends (UINT64_MAX: for ever);
  // 0 where the plug-in says nothing.
  std::uint64_t latency_frames() const;
  std::uint64_t tail_frames() const;

  // What the plug-in remembers beyond its parameters. Empty when it has no state extension. While
  // not active; throws Error: wrong_state, plugin_failed.
  std::vector<std::byte> save_state() const;
  void load_state(const std::vector<std::byte>& state);

 private:
  friend struct detail::Access;
  friend class Broker;
  explicit PluginInstance(std::unique_ptr<detail::Instance> impl);
  std::unique_ptr<detail::Instance> impl_;
};

}  // namespace ctxbroker
