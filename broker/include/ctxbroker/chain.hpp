/// @file
/// Runs jobs through several plug-ins in a row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/plugin_instance.hpp"

namespace ctxbroker {

class Broker;

/// One job: an image, or a block of audio.
struct JobInfo {
  std::uint32_t width = 1;    ///< Pixels in a row, or frames in this block.
  std::uint32_t height = 1;   ///< Rows, or channels.
  std::int64_t position = 0;  ///< The frame's number, or the first sample's.
  double sample_rate = 0;     ///< Hz, for audio that of the activation; 0 for images.
  /// How long the job may take, in ns; 0: no limit. The broker tells the plug-ins and does not
  /// enforce it.
  std::uint64_t deadline_ns = 0;
  bool discontinuity = false;  ///< The job does not follow the last one.
};

/// Instances in a row. A job goes from host memory to the first device, through every instance, and
/// from the last device back to host memory, with one wait at the end.
///
/// The instances may be on several devices. Between neighbours whose leases share memory (shared
/// and green leases of one device do), a buffer is handed over; between others it is copied.
///
/// A chain belongs to the activations of its instances: after a deactivate, make a new chain. It is
/// move-only, and a moved-from chain must not be used. Destroy it before its instances and before
/// the broker.
///
/// Threads: any thread may call process, but only one at a time per chain, and one at a time for
/// chains that have an instance in common. It may run beside the other chains, and beside all calls
/// that are not of the chain's instances, Broker::poll and Broker::force_loss included. Construct,
/// move and destroy chains on the thread that opened the broker, or serialise that with it.
class CTXB_API Chain {
 public:
  /// Connects instances and allocates the buffers between them.
  ///
  /// @param broker  the broker of the instances. It must outlive the chain.
  /// @param stages  the instances in order, at least one, all for the same media and active for at
  ///                least `sizes`. They are borrowed and must outlive the chain.
  /// @param sizes   the largest job, in pixels or frames and channels. For audio, the sample rate
  ///                is the one for which all instances are active.
  /// @throws Error  `invalid_argument`, `out_of_memory`, `context_lost`, `driver_call`;
  ///                `wrong_state` when the broker is closed; what PluginInstance::activate throws,
  ///                if a lost lease is renewed.
  Chain(Broker& broker, std::vector<PluginInstance*> stages, const ActivationSizes& sizes);
  Chain(Chain&&) noexcept;
  Chain& operator=(Chain&&) noexcept;
  ~Chain();

  /// Runs one job and returns when `output` is complete.
  ///
  /// An instance whose lease was lost is activated again first, unless it is active for real time.
  /// The broker calls the plug-in's functions for that on this thread, but never beside those that
  /// another thread has it call for any plug-in.
  /// If a plug-in answers that it was not ready (CTXB_AGAIN), the chain waits for the plug-in's
  /// work and calls it once more; a second CTXB_AGAIN is `plugin_failed`.
  /// If the work takes longer than BrokerOptions::job_timeout, the lease of the first instance
  /// whose work has not ended becomes hung, the leases of later instances that wait for that work
  /// are lost, and the call throws `context_lost`.
  /// If a kernel faults, the call throws `context_lost` and names the first instance whose work had
  /// not ended. If the driver does not let the broker know which one that is, the text names all
  /// that it can be ("one of the plug-ins a, b"). A fault of somebody else's work at that moment
  /// looks the same.
  ///
  /// @param input   host memory without gaps. An image has width * height * 4 floats (RGBA). Audio
  ///                has `height` channels of `width` floats each, channel after channel. It is only
  ///                read during the call.
  /// @param output  host memory of the same size. It may be `input`.
  /// @param job     no larger than the chain's sizes.
  /// @throws Error  `invalid_argument` for a job that is too large, or for audio of another sample
  ///                rate than the chain's; `wrong_state`; `plugin_failed`, `driver_call`,
  ///                `context_lost`. The output is undefined after an exception. The
  ///                chain can be used again unless the text says otherwise.
  void process(const float* input, float* output, const JobInfo& job);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ctxbroker
