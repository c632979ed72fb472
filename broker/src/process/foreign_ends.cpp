// SPDX-License-Identifier: Apache-2.0
#include "process/foreign_ends.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace ctxbroker::detail {
namespace {

// One for the process, because its table of descriptors is one. It is never destroyed: a thread
// that was left behind may use it later than anything else.
struct Ends {
  std::mutex mutex;
  std::condition_variable changed;
  unsigned prevented = 0;
  std::vector<int> beginning;  // in close, or about to call it
};
Ends& ends() noexcept {
  static Ends* const all = new Ends;
  return *all;
}

}  // namespace

// The number leaves the table at once, however long the end takes.
void close_foreign(int descriptor) noexcept {
  Ends& all = ends();
  try {
    std::unique_lock lock(all.mutex);
    all.changed.wait(lock, [&] { return all.prevented == 0; });
    all.beginning.push_back(descriptor);
  } catch (...) {  // no memory: it stays open
    return;
  }
  ::close(descriptor);
  const std::lock_guard lock(all.mutex);
  all.beginning.erase(std::find(all.beginning.begin(), all.beginning.end(), descriptor));
}

NoForeignEnds::NoForeignEnds() noexcept {
  constexpr int most_looks = 20;  // another file can have the number by now
  Ends& all = ends();
  std::unique_lock lock(all.mutex);
  ++all.prevented;
  const auto is_here = [](int number) { return ::fcntl(number, F_GETFD) >= 0; };
  for (int look = 0; look < most_looks; ++look) {
    if (std::none_of(all.beginning.begin(), all.beginning.end(), is_here)) return;
    all.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
}

NoForeignEnds::~NoForeignEnds() {
  const std::lock_guard lock(ends().mutex);
  --ends().prevented;
  ends().changed.notify_all();
}

}  // namespace ctxbroker::detail
