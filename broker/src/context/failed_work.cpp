// SPDX-License-Identifier: Apache-2.0
#include "context/failed_work.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

namespace ctxbroker::detail {
namespace {

struct Failure {
  TenantId tenant;
  CUstream stream = nullptr;
  bool is_for[2] = {false, false};  // by FailureReader: not told yet
};

// The last failures of the process, whose streams belong to the process. The oldest makes room.
struct Failures {
  std::mutex mutex;
  std::array<Failure, 64> all{};
  std::uint64_t next = 0;
};
constinit Failures failures;
constinit std::atomic<bool> any_failure{false};

}  // namespace

void add_failed_work(TenantId tenant, CUstream stream) noexcept {
  const std::lock_guard lock(failures.mutex);
  failures.all[failures.next++ % failures.all.size()] = {tenant, stream, {true, true}};
  any_failure.store(true, std::memory_order_release);
}

bool take_failed_work(TenantId tenant, CUstream stream, FailureReader reader) noexcept {
  if (!any_failure.load(std::memory_order_acquire)) return false;
  const bool of_context = reader == FailureReader::code && stream == CU_STREAM_LEGACY;
  const std::lock_guard lock(failures.mutex);
  bool taken = false;
  for (Failure& one : failures.all) {
    if (one.tenant != tenant || (one.stream != stream && !of_context)) continue;
    taken |= std::exchange(one.is_for[static_cast<std::size_t>(reader)], false);
  }
  return taken;
}

std::uint64_t failed_work_count() noexcept {
  if (!any_failure.load(std::memory_order_acquire)) return 0;
  const std::lock_guard lock(failures.mutex);
  return failures.next;
}

void forget_failed_work(CUstream stream, std::uint64_t count) noexcept {
  if (!any_failure.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(failures.mutex);
  const std::uint64_t kept = failures.all.size(), next = failures.next;
  for (std::uint64_t number = next - std::min(next, kept); number < std::min(next, count);
       ++number) {
    Failure& one = failures.all[number % kept];
    if (one.stream == stream) one = {};
  }
}

}  // namespace ctxbroker::detail
