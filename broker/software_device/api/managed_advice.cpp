// SPDX-License-Identifier: Apache-2.0
#include "api/managed_advice.hpp"

#include <algorithm>
#include <iterator>

#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::size_t page = 4096;  // bytes

bool same(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

}  // namespace

std::vector<ManagedAdvice::Answer*> ManagedAdvice::of_range(std::size_t begin, std::size_t end) {
  const std::size_t bounds[] = {begin / page, (end + page - 1) / page};
  for (const std::size_t bound : bounds)
    pages_.emplace(bound, std::prev(pages_.upper_bound(bound))->second);
  std::vector<Answer*> found;
  const auto last = pages_.find(bounds[1]);
  for (auto entry = pages_.find(bounds[0]); entry != last; ++entry) found.push_back(&entry->second);
  return found;
}

void ManagedAdvice::advise(std::size_t begin, std::size_t end, CUmem_advise advice,
                           CUmemLocation location) {
  const CUdevice accessor =
      location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CUdevice(CU_DEVICE_CPU);
  std::lock_guard lock(mutex_);
  for (Answer* pages : of_range(begin, end)) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        pages->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        pages->preferred = location;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        pages->preferred = {};
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        pages->accessed_by.insert(accessor);
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        pages->accessed_by.erase(accessor);
        break;
      default:
        fail(CUDA_ERROR_INVALID_VALUE);
    }
  }
}

void ManagedAdvice::prefetched(std::size_t begin, std::size_t end, CUmemLocation location) {
  std::lock_guard lock(mutex_);
  for (Answer* pages : of_range(begin, end)) pages->prefetched = location;
}

ManagedAdvice::Answer ManagedAdvice::ask(std::size_t begin, std::size_t end) {
  std::lock_guard lock(mutex_);
  const std::vector<Answer*> all = of_range(begin, end);
  Answer answer = *all.front();
  for (const Answer* pages : all) {
    answer.read_mostly &= pages->read_mostly;
    if (!same(answer.preferred, pages->preferred)) answer.preferred = {};
    if (!same(answer.prefetched, pages->prefetched)) answer.prefetched = {};
    std::erase_if(answer.accessed_by,
                  [&](CUdevice device) { return pages->accessed_by.count(device) == 0; });
  }
  return answer;
}

}  // namespace ctxbroker::software
