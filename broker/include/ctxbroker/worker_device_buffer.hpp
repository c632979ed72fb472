// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device memory that a host lends to a graph in a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
class GraphClient;
struct LentDevice;
}  // namespace detail

/// Device memory that is lent to a graph in a worker. WorkerGraph::lend returns it.
///
/// It is move-only, and its end takes the memory back. A moved-from object holds nothing. It may
/// outlive the graph. It does not keep the DeviceMemory: destroy that one later, because jobs name
/// its address.
///
/// You may destroy it while a job uses it: the worker keeps the memory until the job is done.
///
/// Threads: destroying it, or assigning to it, counts as a call of the graph.
class CTXB_API WorkerDeviceBuffer {
 public:
  /// Holds nothing.
  WorkerDeviceBuffer() noexcept = default;
  WorkerDeviceBuffer(WorkerDeviceBuffer&&) noexcept = default;
  WorkerDeviceBuffer& operator=(WorkerDeviceBuffer&& other) noexcept;
  ~WorkerDeviceBuffer();

  /// DeviceMemory::address of what is lent, or 0 when it holds nothing.
  [[nodiscard]] std::uint64_t address() const& noexcept;
  std::uint64_t address() const&& = delete;
  /// DeviceMemory::bytes of what is lent, or 0 when it holds nothing.
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  /// Whether it holds something.
  [[nodiscard]] explicit operator bool() const noexcept { return memory_ != nullptr; }

 private:
  friend class detail::GraphClient;
  explicit WorkerDeviceBuffer(std::shared_ptr<detail::LentDevice> memory)
      : memory_(std::move(memory)) {}
  std::shared_ptr<detail::LentDevice> memory_;
};

}  // namespace ctxbroker
