// SPDX-License-Identifier: Apache-2.0
// The one whose latency is measured: an audio plug-in that works on 64 stereo frames.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "support/kernels.hpp"
#include "support/session.hpp"

namespace ctxbroker::bench {

class Victim {
 public:
  static constexpr unsigned frames = 64;
  static constexpr unsigned channels = 2;

  // The tenant outlives it.
  Victim(Session& session, Tenant& tenant);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // One block after the other for so long; adds the nanoseconds of each: guard, launch, wait.
  void play(double seconds, std::vector<double>& latencies);

 private:
  double one_block();

  const CheckedDriver& driver_;
  Tenant& tenant_;
  std::unique_ptr<Module> module_;
  CUfunction gain_ = nullptr;
  CUstream stream_ = nullptr;
  std::uint64_t samples_ = 0;
};

}  // namespace ctxbroker::bench
