// SPDX-License-Identifier: Apache-2.0
// The loads with which a neighbour troubles the victim. They need a driver and no broker.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "support/kernels.hpp"

namespace ctxbroker::bench {

struct LoadSettings {
  double hog_milliseconds = 100;             // one launch of a hog
  std::uint64_t triad_bytes = 256ULL << 20;  // of each of three buffers
  std::uint64_t pinned_bytes = 16ULL << 20;
};

// What a load's function sees. It runs on a thread of its own, in the neighbour's lease.
struct LoadContext {
  const CheckedDriver& driver;
  const LoadSettings& settings;
  const Pace* pace;  // null: for loads that do not compute
  const std::atomic<bool>& stop;
  std::atomic<bool>& begun;             // set when the preparations are over
  std::atomic<std::uint64_t>& done;     // how often it did what it does
  std::atomic<std::uint64_t>& refused;  // and how often the driver said no
  unsigned multiprocessors = 0;         // of the neighbour's lease
};

enum class Takes : std::uint8_t { no_memory, device_memory, pinned_memory };

struct Load {
  const char* name;
  const char* description;
  void (*run)(LoadContext& context);  // null: no neighbour
  bool needs_pace = false;
  Takes takes = Takes::no_memory;  // and frees it, in a loop
};

std::span<const Load> loads() noexcept;

}  // namespace ctxbroker::bench
