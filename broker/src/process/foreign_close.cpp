// SPDX-License-Identifier: Apache-2.0
#include "process/foreign_close.hpp"

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
struct Closing {
  std::mutex mutex;
  std::condition_variable changed;
  unsigned prevented = 0;
  std::vector<int> beginning;  // in close, or about to call it
};
Closing& closing() {
  static Closing* const all = new Closing;
  return *all;
}

}  // namespace

// The number leaves the table at once, however long closing takes.
void close_foreign(int descriptor) noexcept {
  Closing& all = closing();
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

NoForeignClose::NoForeignClose() noexcept {
  constexpr int most_looks = 20;  // another file can have the number by now
  Closing& all = closing();
  std::unique_lock lock(all.mutex);
  ++all.prevented;
  const auto is_here = [](int number) { return ::fcntl(number, F_GETFD) >= 0; };
  for (int look = 0; look < most_looks; ++look) {
    if (std::none_of(all.beginning.begin(), all.beginning.end(), is_here)) return;
    all.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
}

NoForeignClose::~NoForeignClose() {
  const std::lock_guard lock(closing().mutex);
  --closing().prevented;
  closing().changed.notify_all();
}

}  // namespace ctxbroker::detail
