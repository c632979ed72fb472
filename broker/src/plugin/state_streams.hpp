// SPDX-License-Identifier: Apache-2.0
// The streams that a plug-in saves its state to and loads it from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// Both streams of one instance. They are never freed, as its HostSide: a plug-in may keep one
// beyond the call that lent it. Then it is refused, which counts as a strike.
class StateStreams {
 public:
  explicit StateStreams(const ctxb_host* its_host) noexcept;

  // Lets the streams work on these. Null, or nothing, takes a stream back.
  void lend(std::vector<std::byte>* its_target,
            std::optional<std::span<const std::byte>> its_source);
  // The functions of the streams. Any thread.
  std::int64_t write(const void* from, std::uint64_t bytes) noexcept;
  std::int64_t read(void* to, std::uint64_t bytes) noexcept;

  const ctxb_output_stream output;
  const ctxb_input_stream input;

 private:
  const ctxb_host* const host_;
  std::mutex mutex_;
  std::vector<std::byte>* target_ = nullptr;
  std::optional<std::span<const std::byte>> source_;
  std::size_t position_ = 0;  // in the source
};

}  // namespace ctxbroker::detail
