// SPDX-License-Identifier: Apache-2.0
// The one split of a device's multiprocessors (SMs) into groups, and who has which of them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Two splits of one device may overlap, so all brokers of the process share one object per device,
// and each partition is a union of its groups. Any thread. The constructor succeeds even when the
// driver splits nothing; status() tells.
class MultiprocessorSplit {
 public:
  // Returns the device's split, and makes it if nobody has it. Throws std::bad_alloc.
  static std::shared_ptr<MultiprocessorSplit> of(const DriverTable& driver, CUdevice device);
  MultiprocessorSplit(const DriverTable& driver, CUdevice device);

  // Returns CUDA_SUCCESS when green contexts can be made, otherwise the driver's answer. NOT_FOUND
  // means that the driver lacks the functions.
  CUresult status() const noexcept { return status_; }

  unsigned total() const noexcept { return total_; }  // of the device
  unsigned group_size() const noexcept {
    return group_size_;
  }  // of the smallest partition; 0: none
  std::size_t groups() const noexcept { return groups_.size(); }
  unsigned free() const noexcept;     // multiprocessors in groups that nobody has
  unsigned grouped() const noexcept;  // multiprocessors in groups; the rest is in no partition

  // Takes groups with at least this many multiprocessors. Returns nothing when too few are free.
  std::optional<std::vector<std::size_t>> take(unsigned multiprocessors);
  void give_back(const std::vector<std::size_t>& groups) noexcept;
  unsigned size_of(const std::vector<std::size_t>& groups) const noexcept;

  // Describes these groups, or the whole device when there are none, for making a green context.
  // The driver keeps descriptions until the process ends.
  CUresult describe(const std::vector<std::size_t>& groups, CUdevResourceDesc* description);

 private:
  const DriverTable driver_;  // outlives the broker that it came from
  CUresult status_ = CUDA_ERROR_NOT_FOUND;
  CUdevResource whole_{};
  std::vector<CUdevResource> groups_;
  mutable std::mutex mutex_;
  std::vector<bool> taken_;  // under the mutex
  unsigned total_ = 0;
  unsigned group_size_ = 0;
};

}  // namespace ctxbroker::detail
