// SPDX-License-Identifier: Apache-2.0
#include "worker/host_channel.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::milliseconds between_looks{5};

void say(CallResult& result, const char* text) noexcept {
  std::snprintf(result.text.data(), result.text.size(), "%s", text);
}

// A text from the worker, as one line that can be shown anywhere.
void copy_text(CallResult& result, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t count = std::min(bytes, result.text.size() - 1);
  std::memcpy(result.text.data(), from, count);
  result.text[count] = '\0';
  for (std::size_t i = 0; i < count; ++i) {
    const auto c = static_cast<unsigned char>(result.text[i]);
    if (c < 0x20 || c == 0x7F) result.text[i] = ' ';
  }
}

CellState state_of(const CellHead& cell, std::memory_order order) noexcept {
  return static_cast<CellState>(cell.state.load(order));
}

}  // namespace

HostChannel::HostChannel(std::byte* memory, const Shape& shape, Clock::duration spin,
                         std::function<void()> look)
    : memory_(memory), shape_(shape), spin_(spin), look_(std::move(look)) {}

bool HostChannel::take_ticket(std::uint32_t& cell, Clock::time_point deadline) noexcept {
  for (;;) {
    const std::uint32_t freed = freed_.load();
    for (cell = 0; cell < shape_.cells; ++cell) {
      bool used = false;
      if (tickets_[cell].used.compare_exchange_strong(used, true)) return true;
    }
    const auto left = deadline - Clock::now();
    if (ended_ || left <= Clock::duration::zero()) return false;
    ++ticket_waiters_;
    futex_wait(freed_, freed, left);
    --ticket_waiters_;
  }
}

void HostChannel::give_ticket_back(std::uint32_t cell) noexcept {
  tickets_[cell].used = false;
  ++freed_;
  if (ticket_waiters_ != 0) futex_wake(freed_);
}

ReplyOutcome HostChannel::wait(CellHead& cell, Clock::time_point deadline,
                               const char*& lie) noexcept {
  CellState seen = CellState::request;
  const auto settled = [&] {
    seen = state_of(cell, std::memory_order_acquire);
    return (seen != CellState::request && seen != CellState::taken) || ended_;
  };
  const auto now = Clock::now();
  bool done = spin_until(std::min(spin_, deadline - now), settled);
  auto look_at = now + between_looks;
  while (!done) {
    const auto before = Clock::now();
    if (before >= deadline) return ReplyOutcome::late;
    if (before >= look_at) {
      if (look_) look_();
      look_at = before + between_looks;
    }
    cell.host_sleeps.store(1);
    done = settled();
    if (!done) {
      futex_wait(cell.state, static_cast<std::uint32_t>(seen),
                 std::min(deadline, look_at) - before);
    }
    cell.host_sleeps.store(0, std::memory_order_relaxed);
    if (!done) done = settled();
  }
  if (seen == CellState::reply) return ReplyOutcome::replied;
  if (ended_) return ReplyOutcome::gone;
  lie = "it gave a call a state that there is not";
  return ReplyOutcome::lie;
}

ReplyOutcome HostChannel::read_reply(CellHead& cell, std::uint32_t sequence, void* reply,
                                     std::size_t capacity, CallResult& result) noexcept {
  const std::uint32_t answered = cell.sequence.load(std::memory_order_relaxed);
  const std::uint32_t bytes = cell.bytes.load(std::memory_order_relaxed);
  result.status = static_cast<std::int32_t>(cell.status.load(std::memory_order_relaxed));
  if (answered != sequence) {
    say(result, "it answered a call that nobody has made");
    return ReplyOutcome::lie;
  }
  if (bytes > (result.status < 0 ? shape_.message_bytes : capacity)) {
    say(result, "it gave an answer that is longer than the room for it");
    return ReplyOutcome::lie;
  }
  if (result.status < 0) {
    copy_text(result, bytes_of(cell), bytes);
  } else if (bytes != 0) {
    std::memcpy(reply, bytes_of(cell), bytes);
    result.bytes = bytes;
  }
  return ReplyOutcome::replied;
}

CallResult HostChannel::call(const WorkerMessage& message, void* reply, std::size_t capacity,
                             Clock::time_point deadline) noexcept {
  struct Caller {
    explicit Caller(std::atomic<std::uint32_t>& count) noexcept : all(count) { ++all; }
    ~Caller() { --all; }
    std::atomic<std::uint32_t>& all;
  } caller(callers_);
  CallResult result;
  std::uint32_t index = 0;
  if (ended_ || !take_ticket(index, deadline)) {
    result.end = ended_ ? ReplyOutcome::gone : ReplyOutcome::crowded;
    return result;
  }
  Ticket& ticket = tickets_[index];
  ticket.type = message.type;
  ticket.subject = message.subject;
  CellHead& cell = cell_of(memory_, shape_, index);
  if (state_of(cell, std::memory_order_acquire) != CellState::idle) {
    say(result, "it answered a call twice, or one that nobody has made");
    result.end = ReplyOutcome::lie;
    return result;
  }
  capacity = std::min<std::size_t>(capacity, shape_.message_bytes);
  const std::uint32_t sequence = ++sequence_;
  cell.sequence.store(sequence, std::memory_order_relaxed);
  cell.type.store(message.type, std::memory_order_relaxed);
  cell.subject_low.store(static_cast<std::uint32_t>(message.subject), std::memory_order_relaxed);
  cell.subject_high.store(static_cast<std::uint32_t>(message.subject >> 32),
                          std::memory_order_relaxed);
  cell.capacity.store(static_cast<std::uint32_t>(capacity), std::memory_order_relaxed);
  cell.bytes.store(static_cast<std::uint32_t>(message.bytes), std::memory_order_relaxed);
  if (message.bytes != 0) std::memcpy(bytes_of(cell), message.data, message.bytes);
  cell.state.store(static_cast<std::uint32_t>(CellState::request), std::memory_order_release);
  Control& control = control_of(memory_);
  control.doorbell.fetch_add(1);
  if (control.sleepers.load() != 0) futex_wake(control.doorbell);

  const char* lie = "";
  result.end = wait(cell, deadline, lie);
  if (result.end == ReplyOutcome::lie) say(result, lie);
  if (result.end == ReplyOutcome::replied) {
    result.end = read_reply(cell, sequence, reply, capacity, result);
  }
  if (result.end == ReplyOutcome::replied) {
    cell.state.store(static_cast<std::uint32_t>(CellState::idle), std::memory_order_release);
    give_ticket_back(index);
  }
  return result;
}

void HostChannel::end() noexcept {
  ended_ = true;
  while (callers_ != 0) {  // a caller may look just before this, and sleep just after it
    for (std::uint32_t i = 0; i < shape_.cells; ++i) futex_wake(cell_of(memory_, shape_, i).state);
    futex_wake(freed_);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool HostChannel::touched_idle_cell() noexcept {
  for (std::uint32_t i = 0; i < shape_.cells; ++i) {
    bool used = false;
    if (!tickets_[i].used.compare_exchange_strong(used, true)) continue;
    const bool idle =
        state_of(cell_of(memory_, shape_, i), std::memory_order_acquire) == CellState::idle;
    give_ticket_back(i);
    if (!idle) return true;
  }
  return false;
}

std::vector<WorkerCallInFlight> HostChannel::in_flight() const {
  std::vector<WorkerCallInFlight> all;
  for (std::uint32_t i = 0; i < shape_.cells; ++i) {
    if (tickets_[i].used) all.push_back({tickets_[i].type, tickets_[i].subject});
  }
  return all;
}

}  // namespace ctxbroker::detail
