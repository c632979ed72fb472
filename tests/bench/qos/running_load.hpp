// SPDX-License-Identifier: Apache-2.0
// A load in a tenant's lease, on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

#include "ctxbroker/tenant.hpp"
#include "qos/loads.hpp"
#include "support/checked_driver.hpp"

namespace ctxbroker::bench {

// Runs a load until stop or its own end. The load is in force when the constructor returns.
class RunningLoad {
 public:
  // The load calls these functions of the driver.
  RunningLoad(const CheckedDriver& driver, const Pace& pace, Tenant& neighbour, const Load& load,
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
