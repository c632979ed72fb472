#include "memory/ledger.hpp"

#include <algorithm>
#include <new>

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

CUresult Ledger::release(CUdeviceptr address) {
  {
    const std::lock_guard lock(mutex_);
    const auto entry = allocations_.find(address);
    if (entry == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
    bytes_.fetch_sub(entry->second, std::memory_order_relaxed);
    uncount(1, entry->second);
    allocations_.erase(entry);
  }
  const CUresult status = driver_.mem_free(address);
  if (status != CUDA_SUCCESS) {
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
    uncount(left.size(), bytes());
    bytes_.store(0, std::memory_order_relaxed);
  }
  Forgotten forgotten;
  for (const CUdeviceptr address : refused) {
    const CUresult status = driver_.mem_free(address);
    if (forgotten.status == CUDA_SUCCESS) forgotten.status = status;
  }
  for (const auto& [address, bytes] : left) {
    const CUresult status = driver_.mem_free(address);
    if (forgotten.status == CUDA_SUCCESS) forgotten.status = status;
    ++forgotten.count;
    forgotten.bytes += bytes;
  }
  return forgotten;
}

void Ledger::forget_all() noexcept {
  {
    const std::lock_guard lock(mutex_);
    uncount(allocations_.size(), bytes());
  }
  leave_all();
}

void Ledger::leave_all() noexcept {
  const std::lock_guard lock(mutex_);
  allocations_.clear();
  refused_.clear();
  bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace ctxbroker::detail
