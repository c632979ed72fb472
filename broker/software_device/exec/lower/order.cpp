// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "exec/lower/flow.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

constexpr std::uint32_t none = ~0U;
static_assert(none == no_target);

Kind kind_of(const Step& step) {
  return op_entry(CpuLevel::baseline, step.op).kind;
}

bool ends_block(Kind kind) {
  return kind == Kind::branch || kind == Kind::exit || kind == Kind::jump;
}

// The blocks as a graph, with what the ordering needs to know of it.
class Graph {
 public:
  Graph(const std::vector<Block>& blocks, const Work& work)
      : blocks_(blocks),
        work_(work),
        predecessors_(blocks.size()),
        dominator_(blocks.size(), none),
        number_(blocks.size(), none),
        loop_(blocks.size(), none) {
    walk();
    for (const std::uint32_t block : postorder_) {
      for (const std::uint32_t next : blocks_[block].successors) {
        predecessors_[next].push_back(block);
      }
    }
    find_dominators();
    find_loops();
  }

  bool is_reachable(std::uint32_t block) const { return number_[block] != none; }
  std::size_t reachable_count() const { return postorder_.size(); }
  const std::vector<std::uint32_t>& predecessors(std::uint32_t block) const {
    return predecessors_[block];
  }
  bool is_back_edge(std::uint32_t from, std::uint32_t to) const { return dominates(to, from); }

  // How deep the innermost loop lies that has both blocks: 0 for none.
  std::uint32_t common_depth(std::uint32_t a, std::uint32_t b) const {
    std::uint32_t x = loop_[a], y = loop_[b];
    while (x != y) {
      work_.spend(1);
      const std::uint32_t dx = depth(x), dy = depth(y);
      if (dx >= dy) x = outer(x);
      if (dy >= dx) y = outer(y);
    }
    return depth(x);
  }

 private:
  struct Loop {
    std::uint32_t header = none, outer = none, depth = 0;
  };

  std::uint32_t depth(std::uint32_t loop) const { return loop == none ? 0 : loops_[loop].depth; }
  std::uint32_t outer(std::uint32_t loop) const { return loop == none ? none : loops_[loop].outer; }

  // Postorder without recursion: kernels may be long.
  void walk() {
    std::vector<std::pair<std::uint32_t, std::size_t>> path = {{0, 0}};
    std::vector<bool> seen(blocks_.size());
    seen[0] = true;
    while (!path.empty()) {
      auto& [block, next] = path.back();
      const auto& successors = blocks_[block].successors;
      if (next < successors.size()) {
        const std::uint32_t to = successors[next++];
        if (!seen[to]) {
          seen[to] = true;
          path.emplace_back(to, 0);
        }
        continue;
      }
      number_[block] = static_cast<std::uint32_t>(postorder_.size());
      postorder_.push_back(block);
      path.pop_back();
    }
  }

  std::uint32_t intersect(std::uint32_t a, std::uint32_t b) const {
    std::uint64_t steps = 1;
    while (a != b) {
      for (; number_[a] < number_[b]; ++steps) a = dominator_[a];
      for (; number_[b] < number_[a]; ++steps) b = dominator_[b];
    }
    work_.spend(steps);
    return a;
  }

  // Cooper, Harvey and Kennedy: "A Simple, Fast Dominance Algorithm".
  void find_dominators() {
    dominator_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = postorder_.rbegin(); at != postorder_.rend(); ++at) {
        if (*at == 0) continue;
        std::uint32_t found = none;
        for (const std::uint32_t from : predecessors_[*at]) {
          if (dominator_[from] == none) continue;
          found = found == none ? from : intersect(from, found);
        }
        if (dominator_[*at] != found) {
          dominator_[*at] = found;
          changed = true;
        }
      }
    }
  }

  bool dominates(std::uint32_t a, std::uint32_t b) const {
    std::uint64_t steps = 1;
    for (; number_[b] < number_[a]; ++steps) b = dominator_[b];
    work_.spend(steps);
    return a == b;
  }

  // A loop per header; outer headers come first in reverse postorder, so inner loops are found
  // later and overwrite what lies inside.
  void find_loops() {
    for (auto at = postorder_.rbegin(); at != postorder_.rend(); ++at) {
      std::vector<std::uint32_t> work;
      for (const std::uint32_t from : predecessors_[*at]) {
        if (is_back_edge(from, *at)) work.push_back(from);
      }
      if (work.empty()) continue;
      const auto loop = static_cast<std::uint32_t>(loops_.size());
      loops_.push_back({*at, loop_[*at], depth(loop_[*at]) + 1});
      work_.spend(blocks_.size() / 64);
      std::vector<bool> inside(blocks_.size());
      inside[*at] = true;
      loop_[*at] = loop;
      while (!work.empty()) {
        const std::uint32_t block = work.back();
        work.pop_back();
        if (inside[block]) continue;
        inside[block] = true;
        loop_[block] = loop;
        work_.spend(1 + predecessors_[block].size());
        work.insert(work.end(), predecessors_[block].begin(), predecessors_[block].end());
      }
    }
  }

  const std::vector<Block>& blocks_;
  const Work& work_;
  std::vector<std::vector<std::uint32_t>> predecessors_;
  std::vector<std::uint32_t> postorder_ = {};
  std::vector<std::uint32_t> dominator_, number_;  // number: in postorder
  std::vector<std::uint32_t> loop_;                // innermost loop of each block
  std::vector<Loop> loops_ = {};
};

// A topological order that ignores back edges and leaves a loop only when all of it is placed.
std::vector<std::uint32_t> sorted(const std::vector<Block>& blocks, const Work& work) {
  const Graph graph(blocks, work);
  const auto count = static_cast<std::uint32_t>(blocks.size());
  std::vector<std::uint32_t> waits(count, 0);
  for (std::uint32_t block = 0; block < count; ++block) {
    if (!graph.is_reachable(block)) continue;
    for (const std::uint32_t from : graph.predecessors(block)) {
      if (!graph.is_back_edge(from, block)) ++waits[block];
    }
  }
  std::vector<std::uint32_t> order, ready = {0};
  std::vector<bool> placed(count);
  while (order.size() < graph.reachable_count()) {
    std::uint32_t chosen = none;
    if (ready.empty()) {
      // Loops with several entries have no order; take them as they stand.
      for (chosen = 0; placed[chosen] || !graph.is_reachable(chosen);) ++chosen;
      work.spend(1 + chosen);
    } else {
      work.spend(2 * ready.size());
      const auto rank = [&](std::uint32_t block) {
        const std::uint32_t depth = order.empty() ? 0 : graph.common_depth(order.back(), block);
        return std::make_pair(depth, count - block);
      };
      auto best = ready.begin();
      auto best_rank = rank(*best);
      for (auto at = best + 1; at != ready.end(); ++at) {
        if (const auto its_rank = rank(*at); its_rank > best_rank) {
          best = at;
          best_rank = its_rank;
        }
      }
      chosen = *best;
      ready.erase(best);
    }
    if (placed[chosen]) continue;
    placed[chosen] = true;
    order.push_back(chosen);
    for (const std::uint32_t next : blocks[chosen].successors) {
      if (placed[next] || graph.is_back_edge(chosen, next)) continue;
      if (waits[next] > 0 && --waits[next] == 0) ready.push_back(next);
    }
  }
  return order;
}

}  // namespace

std::vector<Block> find_blocks(const Flow& flow) {
  const std::vector<Step>& steps = flow.steps;
  std::vector<bool> leads(steps.size() + 1);
  leads[0] = true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Kind kind = kind_of(steps[i]);
    if (kind == Kind::branch) leads[static_cast<std::size_t>(steps[i].immediate)] = true;
    if (ends_block(kind)) leads[i + 1] = true;
  }
  for (const auto& table : flow.tables) {
    for (const std::uint32_t target : table) {
      if (target != no_target) leads[target] = true;
    }
  }
  std::vector<Block> blocks;
  std::vector<std::uint32_t> block_of(steps.size());
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (leads[i]) {
      if (!blocks.empty()) blocks.back().end = i;
      blocks.push_back({i, i});
    }
    block_of[i] = static_cast<std::uint32_t>(blocks.size() - 1);
  }
  blocks.back().end = static_cast<std::uint32_t>(steps.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    const Step& last = steps[block.end - 1];
    const Kind kind = kind_of(last);
    const bool always = last.guard == no_value && ends_block(kind);
    block.falls_through = !always && i + 1 < blocks.size();
    if (block.falls_through) block.successors.push_back(i + 1);
    if (kind == Kind::branch) {
      block.successors.push_back(block_of[static_cast<std::size_t>(last.immediate)]);
    }
    if (kind == Kind::jump) {
      for (const std::uint32_t target : flow.tables[static_cast<std::size_t>(last.immediate)]) {
        if (target != no_target) block.successors.push_back(block_of[target]);
      }
      std::sort(block.successors.begin(), block.successors.end());
      const auto last_one = std::unique(block.successors.begin(), block.successors.end());
      block.successors.erase(last_one, block.successors.end());
    }
  }
  return blocks;
}

void order_blocks(Flow& flow) {
  const std::vector<Block> blocks = find_blocks(flow);
  const std::vector<std::uint32_t> order = sorted(blocks, flow.work);
  const Op* bra = find_op("bra");
  std::vector<Step> steps;
  std::vector<bool> extra_written;
  std::vector<std::uint32_t> starts(blocks.size(), none);
  std::vector<std::size_t> branches;  // their immediate is still a block
  const auto add_branch = [&](Step step, std::uint32_t target) {
    step.immediate = target;
    branches.push_back(steps.size());
    steps.push_back(step);
    extra_written.push_back(false);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Block& block = blocks[order[i]];
    const std::uint32_t following = i + 1 < order.size() ? order[i + 1] : none;
    starts[order[i]] = static_cast<std::uint32_t>(steps.size());
    for (std::uint32_t s = block.begin; s < block.end; ++s) {
      if (s + 1 == block.end && kind_of(flow.steps[s]) == Kind::branch) break;
      steps.push_back(flow.steps[s]);
      extra_written.push_back(flow.extra_written[s]);
    }
    Step last = flow.steps[block.end - 1];
    const std::uint32_t through = block.falls_through ? block.successors.front() : none;
    if (kind_of(last) == Kind::branch) {
      const std::uint32_t target = block.successors.back();
      if (through != none && target == following) {
        last.guard_negated = !last.guard_negated;
        add_branch(last, through);
        continue;
      }
      if (target != following) add_branch(last, target);
      if (through == none) continue;
    }
    if (through != none && through != following) {
      Step jump;
      jump.op = bra->id;
      jump.line = last.line;
      add_branch(jump, through);
    }
  }
  for (const std::size_t branch : branches) {
    steps[branch].immediate = starts[static_cast<std::size_t>(steps[branch].immediate)];
  }
  std::unordered_map<std::uint32_t, std::uint32_t> moved;  // first steps of blocks
  for (std::size_t i = 0; i < blocks.size(); ++i) moved[blocks[i].begin] = starts[i];
  for (auto& table : flow.tables) {
    for (std::uint32_t& target : table) {
      if (target != no_target) target = moved.at(target);  // none, too, leads nowhere
    }
  }
  flow.steps = std::move(steps);
  flow.extra_written = std::move(extra_written);
}

}  // namespace ctxbroker::software::exec::lower
