// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory that jobs use without staging.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
class HostBlock;
struct Access;
}  // namespace detail

/// A block of host memory that the broker has registered with CUDA, for all devices.
///
/// Broker::host_memory makes one, and Broker::register_memory makes one of memory that the host has
/// already. A Graph recognises buffers in such a block by their addresses. It copies them straight
/// to the device and from there, with one asynchronous copy each, and the processor copies nothing.
/// Buffers in other memory are first copied to memory of the graph.
///
/// A buffer that begins in a block must end in it; otherwise the job is refused with
/// `invalid_argument`. A buffer that begins in front of a block is other memory.
///
/// A job in flight owns its buffers in a block: leave its inputs as they are, and do not use its
/// outputs, until the job is finished. (Inputs in other memory are free when Graph::submit
/// returns.) If a job fails, its outputs may hold a part of the result. If its work hangs, the work
/// may write there until it ends, so take other memory for the next job.
///
/// Graphs copy buffers in a block as those in other memory if the block is not registered, if
/// GraphOptions::late is not LateJobs::deliver, and where rows of an output lie apart on the
/// device. is_registered says whether the block is registered. The driver holds up work on all
/// devices while it registers memory, about 0.1 ms for each MiB. So make few and large blocks, and
/// make them before the work begins. A block of a broker that uses no device yet is registered when
/// the first graph is made. In a real-time session (Broker::begin_realtime) no memory is
/// registered. The first Broker::poll or graph after the session does that, and so does the first
/// one after a loss of the device's primary context.
///
/// The class is move-only, and a moved-from object holds nothing. It may outlive the broker, whose
/// close ends the registration.
///
/// Threads: any thread may use the object, but only one at a time.
class CTXB_API HostMemory {
 public:
  /// Holds nothing.
  HostMemory() noexcept = default;
  HostMemory(HostMemory&&) noexcept = default;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory() { reset(); }

  /// The first byte, or null when it holds nothing. Memory from Broker::host_memory begins at a
  /// page.
  [[nodiscard]] void* data() const& noexcept;
  void* data() const&& = delete;  // The memory ends with the object: keep it.
  /// The size, or 0 when it holds nothing.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Returns whether it holds memory.
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }
  /// Returns whether CUDA knows the memory now. It does not without a driver, or if the driver has
  /// refused to register it: a record of the topic "host memory" says why.
  [[nodiscard]] bool is_registered() const noexcept;

  /// Gives the memory up. The object then holds nothing.
  ///
  /// Memory from Broker::host_memory lives on for jobs that use it. The broker unregisters it in a
  /// later Broker::poll or Broker::host_memory, when nothing runs on the device, so that it waits
  /// for no kernel.
  ///
  /// Memory from Broker::register_memory is unregistered in this call, because the host wants to
  /// free it. The driver waits for all kernels on the device, at most for
  /// BrokerOptions::end_timeout. In a real-time session, the call counts for the host
  /// (TenantMetrics::realtime). Finish all jobs that use the memory before.
  ///
  /// @return whether the host may free or reuse memory from Broker::register_memory. If a job uses
  ///         it, or if work hangs, the result is false: keep the memory until the process ends. If
  ///         a job uses it, a record says so. Always true for memory from Broker::host_memory.
  bool reset() noexcept;

 private:
  friend struct detail::Access;
  explicit HostMemory(std::shared_ptr<detail::HostBlock> block) noexcept
      : block_(std::move(block)) {}

  std::shared_ptr<detail::HostBlock> block_;
};

}  // namespace ctxbroker
