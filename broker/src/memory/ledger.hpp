// The device memory an instance holds in its lease: who allocated what, how much it may have, and
// what must be given back when the activation ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "context/lease.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The lease's context is current in every call that makes a driver call. Any thread; the lock is
// held for book-keeping only and never in a launch.
class Ledger {
 public:
  // `budget` in bytes; 0: no limit.
  Ledger(const DriverTable& driver, std::uint64_t budget) : driver_(driver), budget_(budget) {}

  // Where what is allocated from now on is counted too; borrowed. While the ledger is empty.
  void count_in(Holdings& holdings) noexcept { holdings_ = &holdings; }
  // The same for a lease, by which memory is freed then. What has to wait for work that hangs is
  // put off, and stays counted in the lease until it is freed; for the ledger it is given back.
  void use(std::shared_ptr<Lease> lease) noexcept;

  struct Outcome {
    CUresult status = CUDA_SUCCESS;
    bool over_budget = false;  // refused here; no driver call was made
  };
  Outcome allocate(std::uint64_t bytes, CUdeviceptr* address);

  // CUDA_ERROR_INVALID_VALUE, without a driver call, when the address is not in the ledger. What
  // the driver refuses to free is tried again by give_back_all, and counts as given back.
  CUresult release(CUdeviceptr address);

  struct Forgotten {
    std::uint64_t count = 0, bytes = 0;
    CUresult status = CUDA_SUCCESS;  // the first failure
  };
  // Frees everything that is still there, and what the driver refused to.
  Forgotten give_back_all();
  // The memory is gone with its context: forgets it without a driver call.
  void forget_all() noexcept;

  std::uint64_t budget() const noexcept { return budget_; }
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  bool reserve(std::uint64_t bytes);
  void count(std::size_t allocations, std::uint64_t bytes) noexcept;
  void uncount(std::size_t allocations, std::uint64_t bytes) noexcept;
  CUresult free(CUdeviceptr address, std::uint64_t bytes);

  const DriverTable& driver_;
  const std::uint64_t budget_;
  Holdings* holdings_ = nullptr;
  std::shared_ptr<Lease> lease_;
  std::mutex mutex_;
  std::unordered_map<CUdeviceptr, std::uint64_t> allocations_;
  std::vector<CUdeviceptr> refused_;  // by the driver, when they were to be freed
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> peak_{0};
};

}  // namespace ctxbroker::detail
