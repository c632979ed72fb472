// SPDX-License-Identifier: Apache-2.0
#include "files/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ctxbroker::sample_host {

void for_each_part(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (std::size_t part = next++; part < count; part = next++) work(part);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
    const std::size_t wanted = std::min(cores, count);
    helpers.reserve(wanted);
    try {
      while (helpers.size() + 1 < wanted) helpers.emplace_back(run);
    } catch (const std::system_error&) {
      // No more threads: those that are there do the work.
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

void for_each_band(std::size_t rows, const std::function<void(std::size_t, std::size_t)>& work) {
  constexpr std::size_t band = 16;
  for_each_part((rows + band - 1) / band,
                [&](std::size_t part) { work(part * band, std::min(rows, (part + 1) * band)); });
}

}  // namespace ctxbroker::sample_host
