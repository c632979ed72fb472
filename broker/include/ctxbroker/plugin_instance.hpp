// SPDX-License-Identifier: Apache-2.0
/// @file
/// One created object of a plug-in, in its lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/parameter_value.hpp"
#include "ctxbroker/placement.hpp"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker {

namespace detail {
class Instance;
struct Access;
}  // namespace detail

/// How Broker::create makes an instance. A member that is not set follows the policy.
struct InstanceOptions {
  /// The device. If neither the host nor the policy names one, the instance goes where the tenant
  /// has a lease, or else to device 0.
  std::optional<Placement> device{};
  /// The lease. If neither the host nor the policy asks for one, the library's descriptors decide.
  /// If they say nothing, the lease is green where the driver offers that, else shared. A tenant
  /// has one lease on a device. If it has one already, the instance gets that, whatever its kind.
  LeaseChoice lease{};
  /// Device memory, in bytes, that the instance may allocate through the broker. 0: no limit.
  std::optional<std::uint64_t> memory_budget{};
  /// Captures each job's work and launches it as one graph. That saves time on the device if a job
  /// has many small kernels. The broker still calls the plug-in's process for every job.
  ///
  /// A plug-in that waits or allocates in process cannot be captured. The broker then records that,
  /// gives the plug-in the same job a second time, as a discontinuity, and goes on without graphs
  /// until the plug-in is activated again. Capturing allocates memory, so do not use it in real
  /// time.
  bool job_graphs = false;
};

/// The largest jobs that an activation must serve.
struct ActivationSizes {
  std::uint32_t max_width = 1;   ///< Pixels in a row, or frames in a block. At least 1.
  std::uint32_t max_height = 1;  ///< Rows, or channels. At least 1.
  double sample_rate = 0;        ///< Hz, above 0 for audio; 0 for images.
  bool realtime = false;         ///< Jobs come from a thread with real-time constraints.
};

/// A plug-in's object. Broker::create returns it, and a Graph runs its jobs.
///
/// It is move-only, and a moved-from instance must not be used. The destructor deactivates the
/// plug-in and destroys the plug-in's object. It records errors and never throws. Destroy the
/// instance before the broker, and the graphs that use it before the instance. If a thread of the
/// plug-in stays inside a call to the host for longer than BrokerOptions::end_timeout, the broker
/// records that, and keeps what the call uses until Broker::poll or Broker::close finds that the
/// thread has left.
///
/// One thread at a time calls the plug-ins of one library, except for their jobs. While a graph
/// activates one of them again after a loss, other calls into plug-ins of the library wait, at most
/// for BrokerOptions::end_timeout. Then they throw `wrong_state`, and the text names the function
/// that still runs. The destructor makes a record instead, and Broker::poll or Broker::close ends
/// the instance later.
///
/// Threads: call it on the thread that opened the broker, or serialise the calls with it. Do not
/// call it while a graph runs a job of this instance. Functions that say that they are thread-safe
/// can be called on any thread at any time.
class CTXB_API PluginInstance {
 public:
  PluginInstance(PluginInstance&&) noexcept;
  PluginInstance& operator=(PluginInstance&&) noexcept;
  ~PluginInstance();

  /// The plug-in's descriptor. It lives as long as the instance. Thread-safe.
  [[nodiscard]] const PluginDescription& description() const& noexcept;
  [[nodiscard]] PluginDescription description() && { return description(); }
  /// The lease as it is now. LeaseInfo::asked is what was asked for this instance.
  [[nodiscard]] LeaseInfo lease() const;
  /// What the instance used so far. Thread-safe.
  [[nodiscard]] Metrics metrics() const;

  /// Sets a parameter that is not text. The next job or activation gets the value. Thread-safe for
  /// automatable parameters. A parameter that is not automatable follows the threads of the class.
  ///
  /// @param id     the parameter's id.
  /// @param value  one number, or a point, or a colour: {1, 0.9, 0.8, 1}.
  /// @throws Error  `unknown_parameter`; `parameter_value`; `invalid_argument` for text;
  ///                `wrong_state` for a parameter that is not automatable while the instance is
  ///                active.
  void set_parameter(std::string_view id, const ParameterValue& value);
  /// Does the same for a real-time thread: it neither locks, nor allocates, nor throws.
  /// Thread-safe for automatable parameters. No job ever gets a part of a point or a colour that
  /// another thread sets. After any answer but ParameterStatus::set, nothing has changed.
  ///
  /// @param index  the parameter's index in PluginDescription::parameters.
  /// @param value  as above.
  /// @return whether it was set, or why not.
  [[nodiscard]] ParameterStatus try_set_parameter(std::size_t index,
                                                  const ParameterValue& value) noexcept;
  // A parameter has an id, or an index for try_set_parameter, which does not throw.
  void set_parameter(std::size_t index, const ParameterValue& value) = delete;
  /// Gets all numbers of a parameter, without a lock, an allocation or an exception. Thread-safe.
  ///
  /// @param index  the parameter's index in PluginDescription::parameters.
  /// @param value  gets the value.
  /// @return false when there is no such parameter, or it is text. `value` is unchanged then.
  [[nodiscard]] bool get_parameter(std::size_t index, ParameterValue& value) const noexcept;
  /// Returns a parameter's number, or the first one of several. Thread-safe.
  /// @throws Error  `unknown_parameter`; `invalid_argument` for text.
  [[nodiscard]] double parameter(std::string_view id) const;
  /// Returns all numbers of a parameter. Thread-safe.
  /// @throws Error  `unknown_parameter`; `invalid_argument` for text.
  [[nodiscard]] ParameterValue parameter_value(std::string_view id) const;

  /// Sets a parameter that is text. The next activation gets it. The path of a file is made
  /// absolute, as seen from the process's working folder.
  ///
  /// @throws Error  `unknown_parameter`; `parameter_value`; `invalid_argument` for numbers;
  ///                `wrong_state` while the instance is active.
  void set_text(std::string_view id, std::string_view text);
  /// Returns the text of a parameter that is text.
  /// @throws Error  `unknown_parameter`; `invalid_argument` for numbers.
  [[nodiscard]] std::string text(std::string_view id) const;

  /// Prints a value for people as the plug-in does it: "0.7 EV", "1/8 note". If the plug-in leaves
  /// that to the host, this is ParameterDescription::format. You may call this and from_text while
  /// a graph runs a job of the instance.
  ///
  /// @throws Error  `unknown_parameter`; `parameter_value`; `invalid_argument` for text;
  ///                `plugin_failed`.
  [[nodiscard]] std::string to_text(std::string_view id, const ParameterValue& value) const;
  /// Reads a value from what a person wrote, as the plug-in does it, or else as
  /// ParameterDescription::parse does. It sets nothing.
  ///
  /// @throws Error  `unknown_parameter`; `parameter_value` with what is allowed, or with the
  ///                plug-in's own words; `invalid_argument` for text.
  [[nodiscard]] ParameterValue from_text(std::string_view id, std::string_view text) const;

  /// Loads the plug-in's modules into the lease and calls the plug-in's activate, which allocates.
  ///
  /// A lease that was lost is renewed first. After an exception the instance is not active, and
  /// what the plug-in had allocated is given back.
  ///
  /// @param sizes  the largest jobs to come.
  /// @throws Error  `invalid_argument` for the sizes; `wrong_state` when the instance is active;
  ///                `plugin_failed`, `kernel_image`, `out_of_memory`, `context_lost`,
  ///                `lease_unavailable`, `driver_call`.
  void activate(const ActivationSizes& sizes);

  /// Waits for the plug-in's work, at most BrokerOptions::end_timeout, and calls the plug-in's
  /// deactivate. Then the broker gives back what the plug-in forgot, and counts a strike for it.
  /// Work that does not end in that time makes the lease hung. The call does nothing when the
  /// instance is not active. It does not throw: if another thread is still inside a call of the
  /// library after that time, the instance stays active, and a record says why.
  void deactivate();
  /// Whether the instance is active: activate succeeded, and deactivate did not follow.
  /// Thread-safe.
  [[nodiscard]] bool active() const noexcept;

  /// Whether the plug-in has asked to be activated again (ctxb_host.request_restart), because
  /// something has to change that is constant for an activation: its latency, for example.
  /// Deactivate and activate the instance, make a new graph, and ask for its latency. Until then,
  /// the plug-in goes on as before. Thread-safe.
  [[nodiscard]] bool restart_requested() const noexcept;

  /// The plug-in's latency: by how many frames its output is late. 0 when the instance is not
  /// active or the plug-in does not report a latency. Constant while the instance is active.
  /// @throws Error  `plugin_failed` if the plug-in throws.
  [[nodiscard]] std::uint64_t latency_frames() const;
  /// The plug-in's tail: for how many frames its output goes on after the input ends; UINT64_MAX:
  /// for ever. 0 when the instance is not active or the plug-in does not report a tail.
  /// @throws Error  `plugin_failed` if the plug-in throws.
  [[nodiscard]] std::uint64_t tail_frames() const;

  /// Whether the plug-in remembers anything beyond its parameters. Thread-safe.
  [[nodiscard]] bool has_state() const noexcept;
  /// Asks the plug-in for what it remembers beyond its parameters.
  ///
  /// @return the plug-in's own bytes; empty when it has nothing to remember.
  /// @throws Error  `wrong_state` while active; `plugin_failed`.
  [[nodiscard]] std::vector<std::byte> save_state() const;
  /// Gives the plug-in back what save_state returned, perhaps in another process.
  ///
  /// @param state  the bytes. Empty bytes do nothing for a plug-in that has nothing to remember.
  /// @throws Error  `wrong_state` while active; `plugin_failed`. The plug-in's state is unchanged
  ///                after an exception.
  void load_state(const std::vector<std::byte>& state);

 private:
  friend struct detail::Access;
  friend class Broker;
  explicit PluginInstance(std::unique_ptr<detail::Instance> impl);
  std::unique_ptr<detail::Instance> impl_;
};

}  // namespace ctxbroker
