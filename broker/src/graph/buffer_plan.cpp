// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/wiring.hpp"

namespace ctxbroker::detail {
namespace {

class Planner {
 public:
  Planner(const Wiring& wiring, const std::vector<Index>& home, const ActivationSizes& sizes)
      : wiring_(wiring), home_(home), sizes_(sizes) {
    plan_.of_value.assign(wiring.values.size(), unused);
    plan_.in_place_of.resize(wiring.values.size());
    for (const WiredNode& node : wiring.nodes) plan_.copies.emplace_back(node.inputs.size());
  }

  BufferPlan plan() {
    // Uploads wait for nobody, so their buffers are new ones.
    for (Index v = 0; v < wiring_.values.size(); ++v) {
      const Value& value = wiring_.values[v];
      if (value.node) continue;
      plan_.of_value[v] = add(home_[value.readers.front()], bytes(value.format));
      hold(plan_.of_value[v], value.readers);
    }
    for (const Index n : wiring_.order) place(n);
    return std::move(plan_);
  }

 private:
  std::uint64_t bytes(const Format& format) const {
    return bytes_of(format, sizes_.max_width, sizes_.max_height);
  }

  void place(Index n) {
    const WiredNode& node = wiring_.nodes[n];
    for (Index port = 0; port < node.inputs.size(); ++port) {
      if (!node.inputs[port]) continue;
      const Index value = *node.inputs[port];
      if (plan_.buffers[plan_.of_value[value]].home == home_[n]) continue;
      const Index copy = find(n, bytes(wiring_.values[value].format));
      plan_.copies[n][port] = copy;
      hold(copy, {n});
    }
    for (Index port = 0; port < node.outputs.size(); ++port) {
      if (node.outputs[port] == unused) continue;
      const Value& value = wiring_.values[node.outputs[port]];
      const Maybe source = in_place(n, port);
      plan_.in_place_of[node.outputs[port]] = source;
      Index& at = plan_.of_value[node.outputs[port]];
      at = source ? plan_.of_value[*source] : find(n, bytes(value.format));
      hold(at, value.readers.empty() ? std::vector<Index>{n} : value.readers);
      is_kept_[at] = value.goes_to_host;
    }
  }

  // The input, when the port allows it and nobody else reads the input at that time.
  Maybe in_place(Index n, Index port) const {
    const WiredNode& node = wiring_.nodes[n];
    const int in_place = node.plugin->outputs[port].in_place;
    if (in_place < 0 || node.asks_regions) return {};
    const auto is_it = [&](const Feed& feed) {
      return feed.port == static_cast<Index>(in_place) && feed.frame == 0;
    };
    const auto input = static_cast<Index>(
        std::find_if(node.feeds.begin(), node.feeds.end(), is_it) - node.feeds.begin());
    if (!node.inputs[input]) return {};
    const Index source = *node.inputs[input];
    const Value& value = wiring_.values[source];
    const Format& format = wiring_.values[node.outputs[port]].format;
    if (value.goes_to_host || !(value.format == format)) return {};
    if (plan_.copies[n][input]) return {};
    const auto others_read_it = [&](Index reader) {
      return reader != n && !node.comes_after[reader];
    };
    if (std::any_of(value.readers.begin(), value.readers.end(), others_read_it)) return {};
    const auto is_same = [&](const Maybe& other) { return other == Maybe(source); };
    if (std::count_if(node.inputs.begin(), node.inputs.end(), is_same) != 1) return {};
    const Index buffer = plan_.of_value[source];
    for (Index other = 0; other < port; ++other) {
      if (node.outputs[other] != unused && plan_.of_value[node.outputs[other]] == buffer) return {};
    }
    return source;
  }

  // A buffer for node n to write: the smallest that is free by then, or a new one.
  Index find(Index n, std::uint64_t least) {
    Maybe best;
    for (Index b = 0; b < plan_.buffers.size(); ++b) {
      const BufferPlan::Buffer& buffer = plan_.buffers[b];
      if (buffer.home != home_[n] || buffer.bytes < least || !is_free_for(n, b)) continue;
      if (!best || buffer.bytes < plan_.buffers[*best].bytes) best = b;
    }
    return best ? *best : add(home_[n], least);
  }

  bool is_free_for(Index n, Index buffer) const {
    if (is_kept_[buffer]) return false;
    const std::vector<bool>& before = wiring_.nodes[n].comes_after;
    return std::all_of(users_[buffer].begin(), users_[buffer].end(),
                       [&](Index user) { return before[user]; });
  }

  Index add(Index home, std::uint64_t bytes) {
    plan_.buffers.push_back({home, bytes});
    users_.emplace_back();
    is_kept_.push_back(false);
    return plan_.buffers.size() - 1;
  }
  void hold(Index buffer, std::vector<Index> users) { users_[buffer] = std::move(users); }

  const Wiring& wiring_;
  const std::vector<Index>& home_;
  const ActivationSizes& sizes_;
  BufferPlan plan_;
  std::vector<std::vector<Index>> users_;  // of each buffer: who uses what is in it
  std::vector<bool> is_kept_;              // until the job ends
};

}  // namespace

BufferPlan plan_buffers(const Wiring& wiring, const std::vector<Index>& home,
                        const ActivationSizes& sizes) {
  return Planner(wiring, home, sizes).plan();
}

}  // namespace ctxbroker::detail
