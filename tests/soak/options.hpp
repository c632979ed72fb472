// SPDX-License-Identifier: Apache-2.0
// What the soak is asked for.
#pragma once

#include <string>
#include <vector>

namespace ctxbroker::soak {

struct Options {
  int plugins = 64;
  double seconds = 480;
  double patience = 120;  // for one step of a thread
  int device = 0;
  unsigned seed = 1;
  unsigned threads = 0;  // 0: more than there are cores
  std::string json;
  std::vector<std::string> modes;   // empty: all that there are
  std::vector<std::string> leases;  // kinds, "green" with its partitions; empty: all
  bool without_broker = false;
  bool behaved = false;
  bool stuck = false;
};

}  // namespace ctxbroker::soak
