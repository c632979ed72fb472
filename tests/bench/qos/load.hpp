// SPDX-License-Identifier: Apache-2.0
// What a neighbour does to the victim: one table row each.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <thread>

#include "ctxbroker/tenant.hpp"
#include "support/kernels.hpp"
#include "support/session.hpp"

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
  const Pace& pace;  // measured on the whole device
  const std::atomic<bool>& stop;
  std::atomic<bool>& begun;             // set when the preparations are over
  std::atomic<std::uint64_t>& done;     // how often it did what it does
  std::atomic<std::uint64_t>& refused;  // and how often the driver said no
  unsigned multiprocessors = 0;         // of the neighbour's lease
};

struct Load {
  const char* name;
  const char* description;
  void (*run)(LoadContext& context);  // null: no neighbour
};

std::span<const Load> loads() noexcept;

// Runs a load until stop or its own end. The load is in force when the constructor returns.
class RunningLoad {
 public:
  RunningLoad(Session& session, const Pace& pace, Tenant& neighbour, const Load& load,
              const LoadSettings& settings);
  ~RunningLoad();
  RunningLoad(const RunningLoad&) = delete;
  RunningLoad& operator=(const RunningLoad&) = delete;

  // Waits for its end; throws what the load threw.
  void stop();
  std::uint64_t done() const noexcept { return done_.load(); }
  std::uint64_t refused() const noexcept { return refused_.load(); }

 private:
  std::atomic<bool> stop_{false}, begun_{false};
  std::atomic<std::uint64_t> done_{0}, refused_{0};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace ctxbroker::bench
