// SPDX-License-Identifier: Apache-2.0
// A well-behaved neighbour: everything that a plug-in can have on a device, and a look at whether
// it is all still there.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "attacks/attacks.h"

namespace ctxbroker {

class Neighbour {
 public:
  // In the context that is current; `own_context` is what an attacker may take for the neighbour's.
  void settle(void* own_context);
  const AttackTarget& target() const noexcept { return target_; }

  // What is damaged, in words; empty when nothing is. With the context current in which it settled.
  std::vector<std::string> damage() const;

 private:
  AttackTarget target_{};
  CUgraph graph_ = nullptr;
  std::array<std::size_t, 3> limits_{};
  CUfunc_cache cache_ = CU_FUNC_CACHE_PREFER_NONE;
  unsigned flags_ = 0;
};

}  // namespace ctxbroker
