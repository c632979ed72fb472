// SPDX-License-Identifier: Apache-2.0
// The host's end of a channel, of one process. layout.hpp says how it works. It touches memory
// only, so that a test can put both ends into one process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ctxbroker/worker.hpp"
#include "worker/futex.hpp"
#include "worker/layout.hpp"

namespace ctxbroker::detail {

enum class ReplyOutcome {
  replied,  // the reply is whole and checked
  late,     // it did not come in time
  crowded,  // no cell became free in time; nothing was sent
  gone,     // the process has ended
  lie,      // the worker broke the rules; `text` says which
};

struct CallResult {
  ReplyOutcome end = ReplyOutcome::replied;
  std::int32_t status = 0;        // of a reply
  std::size_t bytes = 0;          // of a good reply, in the caller's memory
  std::array<char, 1024> text{};  // of a bad reply or a lie
};

class HostChannel {
 public:
  // The memory is zero and outlives this. Call `end` before its end. A call that gets no answer
  // calls `look` every few milliseconds, because the process may be dying. It must not throw.
  HostChannel(std::byte* memory, const Shape& shape, Clock::duration spin,
              std::function<void()> look = {});

  // Any thread. After `late` and `lie`, the process has to be ended: the cell stays in use.
  CallResult call(const WorkerMessage& message, void* reply, std::size_t capacity,
                  Clock::time_point deadline) noexcept;

  // Every call returns `gone`, also each later one. Returns when the last has left.
  void end() noexcept;

  // Looks at the cells that nobody uses. Returns whether the worker has written there.
  bool touched_idle_cell() noexcept;

  bool busy() const noexcept { return callers_ != 0; }
  std::uint32_t heartbeat() noexcept { return control_of(memory_).heartbeat.load(); }
  bool memory_short() noexcept { return control_of(memory_).memory_short.load() != 0; }
  std::vector<WorkerCallInFlight> in_flight() const;  // the library's own calls included

 private:
  struct Ticket {  // what is in a cell, where the worker cannot reach
    std::atomic<bool> used{false};
    std::atomic<std::uint32_t> type{0};
    std::atomic<std::uint64_t> subject{0};
  };

  bool take_ticket(std::uint32_t& cell, Clock::time_point deadline) noexcept;
  ReplyOutcome wait(CellHead& cell, Clock::time_point deadline, const char*& lie) noexcept;
  ReplyOutcome read_reply(CellHead& cell, std::uint32_t sequence, void* reply, std::size_t capacity,
                          CallResult& result) noexcept;
  void give_ticket_back(std::uint32_t cell) noexcept;

  std::byte* memory_;
  Shape shape_;
  Clock::duration spin_;
  std::function<void()> look_;
  std::array<Ticket, most_cells> tickets_;
  std::atomic<std::uint32_t> sequence_{0};
  SharedWord freed_{0};  // in the host's own memory: how many tickets came back
  std::atomic<std::uint32_t> ticket_waiters_{0};
  std::atomic<std::uint32_t> callers_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace ctxbroker::detail
