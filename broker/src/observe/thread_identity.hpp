// The system's name and number of the calling thread.
#pragma once

#include <array>
#include <cstdint>

namespace ctxbroker::detail {

struct ThreadIdentity {
  std::uint64_t id = 0;
  std::array<char, 16> name{};  // ends with 0
};

// Waits for nobody and allocates nothing.
ThreadIdentity this_thread_identity() noexcept;

}  // namespace ctxbroker::detail
