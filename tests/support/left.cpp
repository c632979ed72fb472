// SPDX-License-Identifier: Apache-2.0
#include "support/left.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "support/process_state.hpp"

namespace ctxbroker {
std::vector<int> children() {
  std::vector<int> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    all.insert(all.end(), std::istream_iterator<int>(file), std::istream_iterator<int>());
  }
  return all;
}

namespace {

std::size_t count_mappings() {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:ctxbroker") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

Left left() {
#ifdef __SANITIZE_THREAD__
  // It starts a thread of its own with the first one, which /proc shows for a while after its end.
  static const bool started = [] {
    std::thread([] {}).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return true;
  }();
  static_cast<void>(started);
#endif
  const ProcessState state = process_state();
  return {children().size(), count_mappings(), state.descriptors, state.threads};
}

Left settled_left() {
  Left now = left(), before{};
  while (!(now == before)) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    now = left();
  }
  return now;
}

Left left_after_all(const Left& expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Left now = left();
  while (!(now == expected) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = left();
  }
  return now;
}

}  // namespace ctxbroker
