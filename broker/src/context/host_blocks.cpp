// SPDX-License-Identifier: Apache-2.0
#include "context/host_blocks.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "context/realtime_session.hpp"
#include "context/used_device.hpp"
#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

HostBlock::~HostBlock() {
  if (const auto owner = owner_.lock()) owner->forget(*this);
}

bool HostBlock::is_registered() const noexcept {
  const std::uint64_t generation = generation_.load(std::memory_order_acquire);
  return generation != 0 &&
         device_.load(std::memory_order_relaxed)->primary_generation() == generation;
}

bool HostBlock::is_registered_now() const noexcept {
  const auto owner = owner_.lock();
  return owner != nullptr && is_registered();
}

bool HostBlock::release() noexcept {
  const auto owner = owner_.lock();
  if (owner == nullptr) return !is_put_off_;  // the broker has ended, and the registration with it
  {
    const std::lock_guard lock(owner->registering_);
    is_released_ = weak_from_this().use_count() == 1;
  }
  if (is_released_) return owner->end_registration(*this, true);
  owner->host_->log(Severity::error, "host memory", [&] {
    return "registered memory of " + std::to_string(pages_->bytes()) +
           " bytes was released while a job uses it; finish the job first, and keep the memory "
           "until then";
  });
  return false;
}

std::shared_ptr<HostBlock> HostBlockList::find(const void* address) const noexcept {
  const std::less<const std::byte*> before;  // of any two addresses
  const auto* const at = static_cast<const std::byte*>(address);
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), at,
      [&](const auto* one, const Entry& entry) { return before(one, entry.begin); });
  if (after == entries.begin() || !before(at, std::prev(after)->end)) return nullptr;
  return std::prev(after)->block.lock();
}

std::shared_ptr<const HostBlockList> HostBlocks::list(std::uint64_t* version,
                                                      bool waits) const noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (waits) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return nullptr;
  }
  *version = version_.load(std::memory_order_relaxed);
  return list_;
}

std::shared_ptr<HostBlock> HostBlocks::add(std::shared_ptr<HostPages> pages) {
  // Blocks that are gone make room first.
  if (leases_ != nullptr && !RealtimeSession::anywhere()) leases_->end_idle();
  auto block = make_shared_by_maker<HostBlock>(weak_from_this(), std::move(pages));
  const HostBlockList::Entry entry{block->pages()->begin(), block->pages()->end(), block,
                                   block.get()};
  {
    const std::less<const std::byte*> before;
    const std::lock_guard lock(mutex_);
    auto next = std::make_shared<HostBlockList>(*list_);
    std::erase_if(next->entries, [](const auto& one) { return one.block.expired(); });
    const auto at = std::find_if(next->entries.begin(), next->entries.end(),
                                 [&](const auto& one) { return before(entry.begin, one.end); });
    if (at != next->entries.end() && before(at->begin, entry.end)) {
      throw Error(ErrorKind::invalid_argument,
                  "register_memory: the memory overlaps with memory that is registered already; "
                  "register it once, as a whole");
    }
    next->entries.insert(at, entry);
    list_ = std::move(next);
    version_.fetch_add(1, std::memory_order_release);
  }
  register_all();
  return block;
}

// The block has no user any more.
void HostBlocks::forget(HostBlock& block) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    auto next = std::make_shared<HostBlockList>(*list_);
    std::erase_if(next->entries, [&](const auto& one) { return one.which == &block; });
    list_ = std::move(next);
    version_.fetch_add(1, std::memory_order_release);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): its entry is dead all the same
  }
  end_registration(block, false);
}

std::vector<std::shared_ptr<HostBlock>> HostBlocks::blocks() const {
  std::uint64_t version = 0;
  std::vector<std::shared_ptr<HostBlock>> all;
  const List present = list(&version, true);
  for (const auto& entry : present->entries) {
    if (auto block = entry.block.lock()) all.push_back(std::move(block));
  }
  return all;
}

void HostBlocks::register_all() noexcept {
  if (leases_ == nullptr || version() == no_block_yet || RealtimeSession::anywhere()) return;
  try {
    UsedDevice* const device = leases_->first_in_use();
    if (device == nullptr || device->fault().happened()) return;
    const std::lock_guard lock(registering_);
    for (const auto& block : blocks()) {
      if (!block->is_registered() && !block->is_released_) register_in(*device, *block);
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next poll tries again
  }
}

void HostBlocks::register_in(UsedDevice& device, HostBlock& block) noexcept {
  const std::uint64_t present = device.primary_generation();
  if (block.refused_.device == &device && block.refused_.generation == present) return;
  HostPages& pages = *block.pages();
  std::uint64_t generation = 0;
  const CUresult status = device.register_pages(pages.begin(), pages.bytes(), &generation);
  if (status == CUDA_SUCCESS) {
    pages.set_known(true);
    block.device_.store(&device, std::memory_order_relaxed);
    block.generation_.store(generation, std::memory_order_release);
    return;
  }
  if (generation == 0 || loses_context(status)) return;
  block.refused_ = {&device, generation};
  host_->log(Severity::warning, "host memory", [&] {
    return "host memory of " + std::to_string(pages.bytes()) +
           " bytes could not be registered (cuMemHostRegister: " +
           status_name(device.driver().table, status) + "); graphs copy it as other memory" +
           (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                ? ". Another part of the process has registered some of it"
                : "");
  });
}

bool HostBlocks::end_registration(HostBlock& block, bool now) noexcept {
  const std::uint64_t generation = block.generation_.exchange(0);
  if (generation == 0) return !block.is_put_off_;
  UsedDevice& device = *block.device_.load(std::memory_order_relaxed);
  UsedDevice::LateEnding late;
  late.generation = generation;
  late.failed = "'s host memory could not be unregistered";
  late.ending.tenant = host_;
  late.ending.what = "registered host memory";
  block.is_put_off_ = true;
  try {
    late.ending.call = [&driver = device.driver().table, pages = block.pages()] {
      return driver.mem_host_unregister(pages->begin());
    };
    late.ending.after = [pages = block.pages()](CUresult status) {
      if (status == CUDA_SUCCESS) pages->set_known(false);
    };
    if (now) {
      const RealtimeWork work(*host_, realtime_call("cuMemHostUnregister"));
      block.is_put_off_ = !device.end_now(std::move(late));
      return !block.is_put_off_;
    }
    device.end_when_idle(std::move(late));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): CUDA knows it for ever
  }
  return false;
}

void HostBlocks::close() noexcept {
  try {
    const std::lock_guard lock(registering_);
    for (const auto& block : blocks()) end_registration(*block, true);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): CUDA knows it for ever
  }
}

}  // namespace ctxbroker::detail
