// SPDX-License-Identifier: Apache-2.0
#include "context/memory_stores.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::microseconds time_of_events{200};

}  // namespace

bool MemoryStores::add(const std::shared_ptr<MemoryStore>& store) {
  std::unique_lock lock(mutex_);
  const std::vector<CUdevice> others = others_;
  stores_.push_back(store);
  lock.unlock();  // the driver's calls may take long
  return std::all_of(others.begin(), others.end(),
                     [&](CUdevice one) { return store->open_to(one) == CUDA_SUCCESS; });
}

CUresult MemoryStores::open_to(CUdevice other, std::uint64_t generation) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (std::find(others_.begin(), others_.end(), other) == others_.end()) others_.push_back(other);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult status = CUDA_SUCCESS;
  for (const auto& store : of(generation)) {
    if (status == CUDA_SUCCESS) status = store->open_to(other);
  }
  return status;
}

std::vector<std::shared_ptr<MemoryStore>> MemoryStores::of(
    std::uint64_t generation) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<MemoryStore>> stores = stores_;
    std::erase_if(stores, [&](const auto& one) { return one->generation() != generation; });
    return stores;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void MemoryStores::free_what_is_done(std::uint64_t generation) noexcept {
  const auto until = MemoryStore::Clock::now() + time_of_events;
  for (const auto& store : of(generation)) store->wait_for_frees(until);
}

std::uint64_t MemoryStores::unused(std::uint64_t generation) const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& store : of(generation)) bytes += store->is_of_host() ? 0 : store->unused();
  return bytes;
}

bool MemoryStores::trim(std::chrono::milliseconds limit, std::uint64_t generation) noexcept {
  bool trimmed = false;
  const auto until = MemoryStore::Clock::now() + limit;
  for (const auto& store : of(generation)) trimmed = store->trim(until) || trimmed;
  return trimmed;
}

void MemoryStores::end_unowned(MemoryStore::Clock::duration limit,
                               std::uint64_t generation) noexcept {
  std::vector<std::shared_ptr<MemoryStore>> left;
  try {
    const std::lock_guard lock(mutex_);
    if (stores_.empty()) return;
    left.reserve(stores_.size());
    const auto first = std::stable_partition(stores_.begin(), stores_.end(), [&](const auto& one) {
      return one.use_count() > 1 && one->generation() == generation;
    });
    std::move(first, stores_.end(), std::back_inserter(left));
    stores_.erase(first, stores_.end());
  } catch (const std::bad_alloc&) {
    return;  // the next poll does it
  }
  const auto until = MemoryStore::Clock::now() + limit;  // the same for all
  for (auto& store : left) {
    const auto rest = std::max<MemoryStore::Clock::duration>(until - MemoryStore::Clock::now(), {});
    const bool has_ended = store->generation() != generation
                               ? store->end_lost(store.use_count() == 1)
                               : store->end_within(rest);
    if (has_ended) continue;
    try {
      const std::lock_guard lock(mutex_);
      stores_.push_back(std::move(store));
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it stays until the exit
    }
  }
}

void MemoryStores::poll(std::uint64_t generation) noexcept {
  end_unowned(time_of_events, generation);
  for (const auto& store : of(generation)) store->poll();
}

void MemoryStores::list_put_off(std::vector<PutOff>& list) const {
  const std::lock_guard lock(mutex_);
  for (const auto& store : stores_) store->list_put_off(list);
}

void MemoryStores::end_all(std::chrono::milliseconds limit, std::uint64_t generation) noexcept {
  std::vector<std::shared_ptr<MemoryStore>> stores;
  {
    const std::lock_guard lock(mutex_);
    stores.swap(stores_);
  }
  for (const auto& store : stores) {
    if (store->generation() != generation) {
      store->end_lost(store.use_count() == 1);
    } else if (store.use_count() > 1) {
      store->keep_nothing();  // memory that stays in the process still needs it
    } else if (!store->end_within(limit) && store->is_lost()) {
      store->end_lost(true);
    }
  }
}

}  // namespace ctxbroker::detail
