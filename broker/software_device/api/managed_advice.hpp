// SPDX-License-Identifier: Apache-2.0
// What was said about the pages of managed memory. Host and device share one memory here, so that
// advice and prefetches change nothing, and are remembered for whoever asks.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

// Thread-safe. Ranges are offsets in the memory, in bytes, and grow to whole pages.
class ManagedAdvice {
 public:
  void advise(std::size_t begin, std::size_t end, CUmem_advise advice, CUmemLocation location);
  void prefetched(std::size_t begin, std::size_t end, CUmemLocation location);

  // What is true of all pages of a range; a location of type CU_MEM_LOCATION_TYPE_INVALID where
  // they differ, or where nothing was said.
  struct Answer {
    bool read_mostly = false;
    CUmemLocation preferred = {}, prefetched = {};
    std::set<CUdevice> accessed_by;  // CU_DEVICE_CPU: the host
  };
  Answer ask(std::size_t begin, std::size_t end);

 private:
  using Pages = std::map<std::size_t, Answer>;  // from its first page to the next one's

  // With mutex_ held: those of a range, and of no page outside it.
  std::vector<Answer*> of_range(std::size_t begin, std::size_t end);

  std::mutex mutex_;
  Pages pages_ = {{0, {}}};
};

}  // namespace ctxbroker::software
