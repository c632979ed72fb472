// Contexts that are made ahead, in the background, so that a new lease need not wait for one.
#pragma once

#include <cstdint>

namespace ctxbroker {

// Per device that is in use. Green contexts come back when their lease ends; private ones do not
// and are made anew.
struct ReadyContexts {
  unsigned green = 0;        // over all multiprocessors; about 5 MiB and 1.5 ms each
  unsigned private_own = 0;  // about 524 MiB and 130 ms each: none fits into the budget below
  // Device memory, in bytes, that all of them may take on one device; what is not in it is not
  // kept. What one takes is known when it was made: where the budget has room left, but not enough,
  // one is made, found too large and ended at once, and another to make sure. A record says so.
  std::uint64_t memory_budget = std::uint64_t{64} << 20;
};

}  // namespace ctxbroker
