#include "memory/ledger.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace ctxbroker::detail {

void Ledger::count(std::size_t allocations, std::uint64_t bytes) noexcept {
  if (holdings_ == nullptr) return;
  holdings_->allocations.fetch_add(static_cast<std::int64_t>(allocations),
                                   std::memory_order_relaxed);
  holdings_->add_bytes(bytes);
}

void Ledger::uncount(std::size_t allocations, std::uint64_t bytes) noexcept {
  if (holdings_ == nullptr) return;
  holdings_->allocations.fetch_sub(static_cast<std::int64_t>(allocations),
                                   std::memory_order_relaxed);
  holdings_->remove_bytes(bytes);
}

bool Ledger::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t held = bytes_.load(std::memory_order_relaxed);
  if (budget_ != 0 && (bytes > budget_ || held > budget_ - bytes)) return false;
  bytes_.store(held + bytes, std::memory_order_relaxed);
  return true;
}

Ledger::Outcome Ledger::allocate(std::uint64_t bytes, CUdeviceptr* address) {
  *address = 0;
  if (bytes == 0) return {CUDA_ERROR_INVALID_VALUE};
  if (!reserve(bytes)) return {CUDA_ERROR_OUT_OF_MEMORY, true};
  CUdeviceptr got = 0;
  CUresult status = driver_.mem_alloc(&got, bytes);
  const std::lock_guard lock(mutex_);
  if (status == CUDA_SUCCESS) {
    try {
      allocations_.emplace(got, bytes);
    } catch (const std::bad_alloc&) {
      driver_.mem_free(got);  // what cannot be entered must not be held
      status = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const std::uint64_t held = bytes_.load(std::memory_order_relaxed);
  if (status != CUDA_SUCCESS) {
    bytes_.store(held - bytes, std::memory_order_relaxed);
    return {status};
  }
  count(1, bytes);
  peak_.store(std::max(peak_.load(std::memory_order_relaxed), held), std::memory_order_relaxed);
  *address = got;
  return {};
}

void Ledger::use(std::shared_ptr<Lease> lease) noexcept {
  count_in(lease->holdings());
  lease_ = std::move(lease);
}

// What is put off is counted until it is freed, whether the ledger is still there or not.
CUresult Ledger::free(CUdeviceptr address, std::uint64_t bytes) {
  if (lease_ == nullptr) {
    uncount(1, bytes);
    return driver_.mem_free(address);
  }
  const auto status =
      lease_->give_back({Home::memory, "device memory", bytes, true, false,
                         [lease = lease_, address] { return lease->table().mem_free(address); },
                         [lease = lease_, bytes](CUresult) {
                           lease->holdings().allocations.fetch_sub(1, std::memory_order_relaxed);
                           lease->holdings().remove_bytes(bytes);
                         }});
  return status.value_or(CUDA_SUCCESS);
}

CUresult Ledger::release(CUdeviceptr address) {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = allocations_.find(address);
    if (entry == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
    bytes = entry->second;
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    allocations_.erase(entry);
  }
  const CUresult status = free(address, bytes);
  if (status != CUDA_SUCCESS && status != Lease::gone) {
    const std::lock_guard lock(mutex_);
    try {
      refused_.push_back(address);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the context's end frees it
    }
  }
  return status;
}

Ledger::Forgotten Ledger::give_back_all() {
  std::unordered_map<CUdeviceptr, std::uint64_t> left;
  std::vector<CUdeviceptr> refused;
  {
    const std::lock_guard lock(mutex_);
    left.swap(allocations_);
    refused.swap(refused_);
    bytes_.store(0, std::memory_order_relaxed);
  }
  count(refused.size(), 0);  // it was uncounted when the driver refused it
  Forgotten forgotten;
  for (const CUdeviceptr address : refused) {
    const CUresult status = free(address, 0);
    if (forgotten.status == CUDA_SUCCESS) forgotten.status = status;
  }
  for (const auto& [address, bytes] : left) {
    const CUresult status = free(address, bytes);
    if (forgotten.status == CUDA_SUCCESS) forgotten.status = status;
    ++forgotten.count;
    forgotten.bytes += bytes;
  }
  return forgotten;
}

void Ledger::forget_all() noexcept {
  const std::lock_guard lock(mutex_);
  uncount(allocations_.size(), bytes());
  allocations_.clear();
  refused_.clear();
  bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace ctxbroker::detail
