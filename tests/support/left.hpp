// SPDX-License-Identifier: Apache-2.0
// Counts what workers leave in the host's process.
#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

namespace ctxbroker {

// The processes that this one has started, zombies included.
std::vector<int> children();

// Counts of this process: children (zombies included), pieces of workers' shared memory that it
// maps, open descriptors and threads.
struct Left {
  std::size_t children, mappings, descriptors, threads;
  friend bool operator==(const Left& a, const Left& b) {
    return a.children == b.children && a.mappings == b.mappings && a.descriptors == b.descriptors &&
           a.threads == b.threads;
  }
  friend std::ostream& operator<<(std::ostream& stream, const Left& left) {
    return stream << left.children << " children, " << left.mappings << " mappings, "
                  << left.descriptors << " descriptors, " << left.threads << " threads";
  }
};
Left left();
// The same once it has stayed for 50 ms: what an earlier test has ended may take a while to go.
Left settled_left();
// The same, as soon as it is what was expected, or after 20 s: a process that was ended may take a
// while to go.
Left left_after_all(const Left& expected);

}  // namespace ctxbroker
