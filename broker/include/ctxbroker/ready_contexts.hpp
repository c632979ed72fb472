// SPDX-License-Identifier: Apache-2.0
/// @file
/// Contexts that the broker creates ahead of need.
#pragma once

#include <cstdint>

namespace ctxbroker {

/// How many contexts a background thread keeps ready on each device in use, so that a new lease
/// does not wait for one. A green context returns to this stock when its lease ends; a private
/// context is destroyed, and a new one is made.
struct ReadyContexts {
  /// Green contexts over all multiprocessors. On NVIDIA's driver one takes about 5 MiB and 1 ms.
  unsigned green = 0;
  /// Private contexts. On NVIDIA's driver one takes about 524 MiB and 100 ms, so none fits into the
  /// default budget.
  unsigned private_own = 0;
  /// The device memory, in bytes, that all ready contexts of one device may take. The broker learns
  /// what a context takes by creating one. One that does not fit is destroyed at once, and a record
  /// says so.
  std::uint64_t memory_budget = std::uint64_t{64} << 20;
};

}  // namespace ctxbroker
