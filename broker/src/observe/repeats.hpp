// SPDX-License-Identifier: Apache-2.0
// Counts messages of one kind, so that one that repeats does not fill the host's log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ctxbroker::detail {

// Any thread. Never throws: without memory for another kind, each message counts as the first.
class Repeats {
 public:
  // Counts a message and returns how many of its kind there were, with this one. Messages of one
  // kind come from one function, and their texts differ in numbers at most.
  std::uint64_t count(std::string_view function, std::string_view text) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::uint64_t> counts_;  // by a hash of function and text
};

// Whether the message with this count is told: the first three are, then the 10th, 100th, ...
bool is_told(std::uint64_t count) noexcept;

// What the reader has to know about the messages that are not told; empty for the first two.
std::string repeats_text(std::uint64_t count);

}  // namespace ctxbroker::detail
