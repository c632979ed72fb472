// SPDX-License-Identifier: Apache-2.0
#include "gate/exports.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <utility>

namespace ctxbroker::detail {
namespace {

// Returns whether both descriptors are of one open file. False where the system does not tell.
bool is_same_file(int one, int other) noexcept {
  constexpr int kcmp_file = 0;
  return one == other || syscall(SYS_kcmp, getpid(), getpid(), kcmp_file, one, other) == 0;
}

}  // namespace

OpenFiles::~OpenFiles() {
  if (epoll_ >= 0) close(epoll_);
}

// A file leaves the set by itself when its last copy is closed.
bool OpenFiles::watch(int file, std::uint64_t number) noexcept {
  if (epoll_ < 0) epoll_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.data.u64 = number;
  if (epoll_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, file, &event) != 0) return false;
  known_ = false;
  return true;
}

void OpenFiles::look() noexcept {
  known_ = false;
  try {
    open_.clear();
    std::ifstream set("/proc/self/fdinfo/" + std::to_string(epoll_));
    if (!set) return;
    for (std::string line; std::getline(set, line);) {
      unsigned long long number = 0;  // "tfd:        5 events:       19 data:               2 ..."
      if (std::sscanf(line.c_str(), "tfd: %*d events: %*x data: %llx", &number) == 1) {
        open_.push_back(number);
      }
    }
    known_ = true;
  } catch (...) {  // NOLINT(bugprone-empty-catch): it is not known
  }
}

bool OpenFiles::is_closed(std::uint64_t number) const noexcept {
  return known_ && std::find(open_.begin(), open_.end(), number) == open_.end();
}

Exports& Exports::all() {
  static auto* const one = new Exports;  // threads of plug-ins may import until the process ends
  return *one;
}

void Exports::add(TenantId tenant, std::shared_ptr<const Charge> charge, int file) {
  const std::lock_guard lock(mutex_);
  forget_closed_ones();
  // Keeps one entry for each piece of memory and open descriptor that the system does not watch.
  std::erase_if(exports_, [&](const Export& one) {
    return one.number == 0 && one.charge == charge && one.file >= 0 &&
           (one.file == file || fcntl(one.file, F_GETFD) == -1);
  });
  exports_.reserve(exports_.size() + 1);
  const std::uint64_t number = ++last_number_;
  const bool watched = files_.watch(file, number);
  exports_.push_back({tenant, std::move(charge), file, watched ? number : 0, {}});
}

void Exports::add(TenantId tenant, std::shared_ptr<const Charge> charge, const Fabric& handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(exports_, [&](const Export& one) { return one.file < 0 && one.handle == handle; });
  exports_.push_back({tenant, std::move(charge), -1, 0, handle});
}

Exports::Found Exports::find(TenantId tenant, int file) {
  Found found;
  const std::lock_guard lock(mutex_);
  const auto take = [&](const Export& one) {
    (one.tenant == tenant ? found.own : found.of_neighbours).push_back(one.charge);
  };
  // The latest first: an earlier one with its number is closed.
  const auto same = std::find_if(exports_.rbegin(), exports_.rend(), [&](const Export& one) {
    return one.file >= 0 && is_same_file(one.file, file);
  });
  if (same != exports_.rend()) {
    take(*same);
    return found;
  }
  for (const Export& one : exports_) {
    if (one.file >= 0 && fcntl(one.file, F_GETFD) == -1) take(one);
  }
  return found;
}

Exports::Found Exports::find(TenantId tenant, const Fabric& handle) {
  Found found;
  const std::lock_guard lock(mutex_);
  for (const Export& one : exports_) {
    if (one.file >= 0 || one.handle != handle) continue;
    (one.tenant == tenant ? found.own : found.of_neighbours).push_back(one.charge);
    break;
  }
  return found;
}

void Exports::forget_closed() noexcept {
  const std::lock_guard lock(mutex_);
  forget_closed_ones();
}

void Exports::forget_closed_ones() noexcept {
  const auto is_watched = [](const Export& one) { return one.number != 0; };
  if (std::none_of(exports_.begin(), exports_.end(), is_watched)) return;
  files_.look();
  std::erase_if(exports_,
                [&](const Export& one) { return is_watched(one) && files_.is_closed(one.number); });
}

void Exports::forget(TenantId tenant) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(exports_, [&](const Export& one) { return one.tenant == tenant; });
}

}  // namespace ctxbroker::detail
