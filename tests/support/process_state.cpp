// SPDX-License-Identifier: Apache-2.0
#include "support/process_state.hpp"

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

namespace ctxbroker {
namespace {

std::size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

ProcessState process_state() {
  return {entries("/proc/self/task"), entries("/proc/self/fd")};
}

ProcessState settled_process_state(std::size_t threads) {
  ProcessState state = process_state();
  for (int naps = 0; naps < 200 && state.threads > threads; ++naps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    state = process_state();
  }
  return state;
}

}  // namespace ctxbroker
