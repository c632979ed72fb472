// What a plug-in has used so far. A snapshot; reading it takes no lock that a launch would wait
// for.
#pragma once

#include <cstdint>

namespace ctxbroker {

struct Metrics {
  std::uint64_t jobs = 0;
  std::uint64_t launches = 0;
  double device_seconds = 0;       // measured with events around each job's work
  std::uint64_t memory_bytes = 0;  // device memory held now, lent buffers not counted
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t strikes = 0;  // recorded breaches of the plug-in contract
};

}  // namespace ctxbroker
