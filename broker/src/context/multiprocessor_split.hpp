// The one split of a device's multiprocessors (SMs) into groups, and who has which of them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Two splits of one device may overlap: partitions hold only when all are cut from one. Hence one
// object per device, and partitions are unions of its groups. Not thread-safe; made without error
// even where the driver splits nothing: see status().
class MultiprocessorSplit {
 public:
  MultiprocessorSplit(const DriverTable& driver, CUdevice device);

  // Success when green contexts can be made; else what the driver answered (NOT_FOUND: it lacks the
  // functions).
  CUresult status() const noexcept { return status_; }

  unsigned total() const noexcept { return total_; }  // of the device
  unsigned group_size() const noexcept {
    return group_size_;
  }  // of the smallest partition; 0: none
  std::size_t groups() const noexcept { return groups_.size(); }
  unsigned free() const noexcept;  // multiprocessors in groups that nobody has

  // Groups with at least so many multiprocessors; nothing when there are not enough.
  std::optional<std::vector<std::size_t>> take(unsigned multiprocessors);
  void give_back(const std::vector<std::size_t>& groups) noexcept;
  unsigned size_of(const std::vector<std::size_t>& groups) const noexcept;

  // What a green context is made from: these groups, or the whole device when there are none. The
  // driver keeps descriptions until the process ends.
  CUresult describe(const std::vector<std::size_t>& groups, CUdevResourceDesc* description);

 private:
  const DriverTable& driver_;
  CUresult status_ = CUDA_ERROR_NOT_FOUND;
  CUdevResource whole_{};
  std::vector<CUdevResource> groups_;
  std::vector<bool> taken_;
  unsigned total_ = 0;
  unsigned group_size_ = 0;
};

}  // namespace ctxbroker::detail
