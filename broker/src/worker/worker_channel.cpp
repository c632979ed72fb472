// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_channel.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

bool WorkerChannel::take_oldest(Request& request) noexcept {
  const auto waiting = static_cast<std::uint32_t>(CellState::request);
  const CellHead* oldest = nullptr;
  for (std::uint32_t i = 0; i < shape_.cells; ++i) {
    const CellHead& cell = cell_of(memory_, shape_, i);
    if (cell.state.load(std::memory_order_acquire) != waiting) continue;
    const auto age = static_cast<std::int32_t>(
        oldest == nullptr ? -1 : cell.sequence.load() - oldest->sequence.load());
    if (age >= 0) continue;
    oldest = &cell;
    request.cell = i;
  }
  if (oldest == nullptr) return false;
  CellHead& cell = cell_of(memory_, shape_, request.cell);
  std::uint32_t state = waiting;
  if (!cell.state.compare_exchange_strong(state, static_cast<std::uint32_t>(CellState::taken))) {
    return false;  // another thread was faster
  }
  request.type = cell.type.load(std::memory_order_relaxed);
  request.subject = cell.subject_high.load(std::memory_order_relaxed);
  request.subject = request.subject << 32 | cell.subject_low.load(std::memory_order_relaxed);
  request.data = bytes_of(cell);
  request.bytes = cell.bytes.load(std::memory_order_relaxed);
  request.capacity = std::min(cell.capacity.load(std::memory_order_relaxed), shape_.message_bytes);
  if (request.bytes <= shape_.message_bytes) return true;
  constexpr std::string_view text = "the message is longer than the channel's messages are";
  reply(request, CTXB_ERROR_INVALID_ARGUMENT, text.data(), text.size());
  return false;
}

bool WorkerChannel::take(Request& request) noexcept {
  Control& shared = control();
  for (;;) {
    std::uint32_t rung = 0;
    bool taken = false;
    const auto looked = [&] {
      rung = shared.doorbell.load();
      if (stopped_) return true;
      taken = take_oldest(request);
      return taken;
    };
    if (!spin_until(spin_, looked)) {
      shared.sleepers.fetch_add(1);
      if (!looked()) futex_wait(shared.doorbell, rung, std::chrono::seconds(10));
      shared.sleepers.fetch_sub(1);
    }
    if (stopped_) return false;
    if (taken) return true;
  }
}

void WorkerChannel::reply(const Request& request, std::int32_t status, const void* data,
                          std::size_t bytes) noexcept {
  CellHead& cell = cell_of(memory_, shape_, request.cell);
  const std::size_t room = status < 0 ? shape_.message_bytes : request.capacity;
  bytes = std::min(bytes, room);
  if (bytes != 0) std::memcpy(bytes_of(cell), data, bytes);
  cell.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  cell.status.store(static_cast<std::uint32_t>(status), std::memory_order_relaxed);
  cell.state.store(static_cast<std::uint32_t>(CellState::reply));
  if (cell.host_sleeps.load() != 0) futex_wake(cell.state);
}

void WorkerChannel::stop() noexcept {
  stopped_ = true;
  control().doorbell.fetch_add(1);
  futex_wake(control().doorbell);
}

}  // namespace ctxbroker::detail
