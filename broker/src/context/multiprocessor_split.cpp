// SPDX-License-Identifier: Apache-2.0
#include "context/multiprocessor_split.hpp"

#include <map>
#include <utility>

namespace ctxbroker::detail {
namespace {

bool has_green_contexts(const DriverTable& driver) noexcept {
  return driver.device_get_resource != nullptr && driver.split_multiprocessors != nullptr &&
         driver.describe_resources != nullptr && driver.green_create != nullptr &&
         driver.green_destroy != nullptr && driver.green_context != nullptr;
}

// The driver rounds up to the smallest group that the device allows.
constexpr unsigned smallest = 1;

}  // namespace

MultiprocessorSplit::MultiprocessorSplit(const DriverTable& driver, CUdevice device)
    : driver_(driver) {
  if (!has_green_contexts(driver)) return;
  status_ = driver.device_get_resource(device, &whole_, CU_DEV_RESOURCE_TYPE_SM);
  if (status_ != CUDA_SUCCESS) return;
  total_ = whole_.sm.smCount;
  unsigned count = 0;
  if (driver.split_multiprocessors(nullptr, &count, &whole_, nullptr, 0, smallest) !=
          CUDA_SUCCESS ||
      count == 0) {
    return;  // a device that cannot be split still gives green contexts over all of it
  }
  groups_.resize(count);
  CUdevResource remaining{};
  if (driver.split_multiprocessors(groups_.data(), &count, &whole_, &remaining, 0, smallest) !=
      CUDA_SUCCESS) {
    groups_.clear();
    return;
  }
  groups_.resize(count);
  taken_.assign(count, false);
  if (count > 0) group_size_ = groups_.front().sm.smCount;
}

std::shared_ptr<MultiprocessorSplit> MultiprocessorSplit::of(const DriverTable& driver,
                                                             CUdevice device) {
  using Key = std::pair<decltype(driver.device_get_resource), CUdevice>;  // of which driver
  // Never ended: brokers may end after static objects.
  static auto* const mutex = new std::mutex;
  static auto* const splits = new std::map<Key, std::weak_ptr<MultiprocessorSplit>>;
  const std::lock_guard lock(*mutex);
  std::weak_ptr<MultiprocessorSplit>& known = (*splits)[{driver.device_get_resource, device}];
  auto split = known.lock();
  if (split == nullptr) {
    split = std::make_shared<MultiprocessorSplit>(driver, device);
    known = split;
  }
  return split;
}

unsigned MultiprocessorSplit::free() const noexcept {
  const std::lock_guard lock(mutex_);
  unsigned free = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (!taken_[group]) free += groups_[group].sm.smCount;
  }
  return free;
}

unsigned MultiprocessorSplit::grouped() const noexcept {
  unsigned grouped = 0;
  for (const CUdevResource& group : groups_) grouped += group.sm.smCount;
  return grouped;
}

std::optional<std::vector<std::size_t>> MultiprocessorSplit::take(unsigned multiprocessors) {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> chosen;
  unsigned size = 0;
  for (std::size_t group = 0; group < groups_.size() && size < multiprocessors; ++group) {
    if (taken_[group]) continue;
    chosen.push_back(group);
    size += groups_[group].sm.smCount;
  }
  if (size < multiprocessors) return std::nullopt;
  for (const std::size_t group : chosen) taken_[group] = true;
  return chosen;
}

void MultiprocessorSplit::give_back(const std::vector<std::size_t>& groups) noexcept {
  const std::lock_guard lock(mutex_);
  for (const std::size_t group : groups) taken_[group] = false;
}

unsigned MultiprocessorSplit::size_of(const std::vector<std::size_t>& groups) const noexcept {
  unsigned size = 0;
  for (const std::size_t group : groups) size += groups_[group].sm.smCount;
  return size;
}

CUresult MultiprocessorSplit::describe(const std::vector<std::size_t>& groups,
                                       CUdevResourceDesc* description) {
  if (groups.empty()) return driver_.describe_resources(description, &whole_, 1);
  std::vector<CUdevResource> resources;
  resources.reserve(groups.size());
  for (const std::size_t group : groups) resources.push_back(groups_[group]);
  return driver_.describe_resources(description, resources.data(),
                                    static_cast<unsigned>(resources.size()));
}

}  // namespace ctxbroker::detail
