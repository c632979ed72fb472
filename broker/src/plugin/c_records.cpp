// SPDX-License-Identifier: Apache-2.0
// host_records.h
#include "ctxbroker/host_records.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "plugin/c_host.hpp"

namespace {

using ctxbroker::detail::answered;
using ctxbroker::detail::give;

struct Entry {
  ctxb_queued_record record{};  // without the texts
  std::string tenant_name, topic, text;
};

std::uint64_t now_ns() noexcept {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

constexpr std::uint32_t default_capacity = 4096;

}  // namespace

struct ctxb_record_queue {
  explicit ctxb_record_queue(std::uint32_t most) : capacity(most) {}

  const std::uint32_t capacity;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries;
  std::uint64_t lost = 0;  // since the last entry
  std::uint32_t waiting = 0;
  std::uint64_t wakes = 0;  // calls of wake
  bool is_woken = false;    // by a wake while no thread waited
  Entry taken;              // whose texts the caller has

  // Returns whether there is an entry.
  bool wait(std::unique_lock<std::mutex>& lock, std::uint32_t timeout_ms) {
    if (!entries.empty() || timeout_ms == 0) return !entries.empty();
    if (std::exchange(is_woken, false)) return false;
    const auto ends = [&, before = wakes] { return !entries.empty() || wakes != before; };
    ++waiting;
    if (timeout_ms == UINT32_MAX) {
      changed.wait(lock, ends);
    } else {
      changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ends);
    }
    --waiting;
    return !entries.empty();
  }
};

ctxb_status ctxb_record_queue_create(uint32_t capacity, ctxb_record_queue** queue) {
  if (queue != nullptr) *queue = nullptr;
  return answered(queue != nullptr, "queue is null", [&] {
    *queue = new ctxb_record_queue(capacity == 0 ? default_capacity : capacity);
  });
}

void ctxb_record_queue_add(void* queue, uint32_t severity, uint32_t tenant, const char* tenant_name,
                           const char* topic, const char* text) {
  auto* const to = static_cast<ctxb_record_queue*>(queue);
  if (to == nullptr) return;
  Entry entry;
  bool is_whole = true;
  try {  // without the lock
    entry.tenant_name = tenant_name != nullptr ? tenant_name : "";
    entry.topic = topic != nullptr ? topic : "";
    entry.text = text != nullptr ? text : "";
  } catch (const std::bad_alloc&) {
    is_whole = false;
  }
  entry.record.severity = severity;
  entry.record.tenant = tenant;
  entry.record.time_ns = now_ns();
  entry.record.thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  {
    const std::lock_guard lock(to->mutex);
    if (!is_whole || to->entries.size() >= to->capacity) {
      ++to->lost;
      return;
    }
    entry.record.lost_before = to->lost;
    try {
      to->entries.push_back(std::move(entry));
      to->lost = 0;
    } catch (const std::bad_alloc&) {
      ++to->lost;
      return;
    }
  }
  to->changed.notify_all();
}

ctxb_status ctxb_record_queue_take(ctxb_record_queue* queue, uint32_t timeout_ms,
                                   ctxb_queued_record* record) {
  bool is_there = false;
  const ctxb_status status = answered(queue != nullptr, "queue is null", [&] {
    std::unique_lock lock(queue->mutex);
    is_there = queue->wait(lock, timeout_ms);
    if (!is_there || record == nullptr) return;
    ctxb_queued_record whole = queue->entries.front().record;
    give(record, whole, "the record's size is not sizeof(ctxb_queued_record)");
    queue->taken = std::move(queue->entries.front());
    queue->entries.pop_front();
    whole.tenant_name = queue->taken.tenant_name.c_str();
    whole.topic = queue->taken.topic.c_str();
    whole.text = queue->taken.text.c_str();
    give(record, whole, "");
  });
  return status != CTXB_OK || is_there ? status : CTXB_AGAIN;
}

void ctxb_record_queue_wake(ctxb_record_queue* queue) {
  if (queue == nullptr) return;
  {
    const std::lock_guard lock(queue->mutex);
    ++queue->wakes;
    queue->is_woken = queue->waiting == 0;
  }
  queue->changed.notify_all();
}

ctxb_status ctxb_record_queue_destroy(ctxb_record_queue* queue) {
  return answered(queue != nullptr, "queue is null", [&] { delete queue; });
}
