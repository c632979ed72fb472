// SPDX-License-Identifier: Apache-2.0
// What happens to a kernel's steps once all are there: the blocks are put into an order in which
// lanes that parted meet again as early as can be, and the values get their places in the frames.
#pragma once

#include <vector>

#include "exec/code.hpp"
#include "ptx/budget.hpp"

namespace ctxbroker::software::exec::lower {

// Charges the analysis of one kernel.
struct Work {
  ptx::Budget* budget = nullptr;
  std::uint32_t line = 0;  // of the kernel
  void spend(std::uint64_t units) const { budget->spend(units, line); }
};

struct Flow {
  std::vector<Step> steps;          // branches: immediate is the index of the target step
  std::vector<bool> extra_written;  // by step: its extra operands are results
  std::vector<ValueId> extra;
  std::vector<std::vector<std::uint32_t>> tables;  // of jumps: target steps, or no_target
  std::vector<std::uint8_t> widths;                // by value
  std::vector<bool> presets;                       // by value: no step writes it
  std::vector<bool> temporaries;  // by value: used only by the instruction that computes it
  Work work;
};

struct Block {
  std::uint32_t begin = 0, end = 0;            // steps
  std::vector<std::uint32_t> successors = {};  // blocks; the one that follows by falling through
                                               // comes first, if there is one
  bool falls_through = false;
};
std::vector<Block> find_blocks(const Flow& flow);

// The values that are read from each of these steps on, before they are written. Each step is one
// that others branch or jump to.
std::vector<std::vector<ValueId>> live_at(const Flow& flow,
                                          const std::vector<std::uint32_t>& steps);

// Sorts the blocks so that a block comes after all that lead to it (loops' back edges aside) and
// loops stay together; drops what cannot be reached. The lockstep engine always runs the lowest
// lanes, so in this order lanes wait where paths join, and after loops.
void order_blocks(Flow& flow);

// The kernel once more, with the accesses to rows of elements known: see Rows. Null if it has none,
// or if it has a loop, because the lockstep engine then hands its last lanes to the scalar engine.
std::shared_ptr<const Rows> find_rows(const Flow& flow, const Code& code);

// Finds out which values live at the same time and gives each its slot; fills code.places, slots
// and frame sizes. code.presets must be complete. Throws SyntaxError beyond what a thread may have.
void give_places(const Flow& flow, Code& code);

}  // namespace ctxbroker::software::exec::lower
