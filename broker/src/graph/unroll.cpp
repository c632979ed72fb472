// SPDX-License-Identifier: Apache-2.0
// Repeats the nodes of a wiring whose results are needed at several frames.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ctxbroker/error.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t most_nodes = 1024;

std::string at_frame(const std::string& name, int frame) {
  if (frame == 0) return name;
  return name + " (frame " + (frame > 0 ? "+" : "") + std::to_string(frame) + ")";
}

class Unroller {
 public:
  Unroller(const Wiring& once, const std::vector<FrameRanges>& frames)
      : once_(once), frames_(frames), is_repeated_(once.nodes.size()) {}

  Wiring unroll() {
    for (const Index n : once_.order) visit({n, 0});
    Wiring made;
    made.media = once_.media;
    made.job_channels = once_.job_channels;
    for (const Place& end : ends_) {
      end_value_[end] = made.values.size();
      made.values.push_back(value_at(end.first, end.second));
      made.values.back().node.reset();
    }
    for (const Place& place : order_) add(made, place);
    for (const Index value : once_.outputs) {
      const Value& from = once_.values[value];
      made.outputs.push_back(made.nodes[new_node_[{*from.node, 0}]].outputs[from.port]);
    }
    return made;
  }

 private:
  using Place = std::pair<Index, int>;  // a node or one of the host's inputs, and its frame

  FrameRange range(Index n, Index port) const {
    return once_.nodes[n].inputs[port] ? frames_[n][port] : FrameRange();
  }

  // Those before come before: depth first. There are no cycles.
  void visit(const Place& place) {
    if (new_node_.count(place) != 0) return;
    const auto& [n, frame] = place;
    const WiredNode& node = once_.nodes[n];
    for (Index port = 0; port < node.inputs.size(); ++port) {
      if (!node.inputs[port]) continue;
      const FrameRange wanted = range(n, port);
      for (int other = frame + wanted.first; other <= frame + wanted.last; ++other) {
        const Value& value = once_.values[*node.inputs[port]];
        if (value.node) {
          visit({*value.node, other});
        } else {
          ends_.insert({*node.inputs[port], other});
        }
        check_node_count(node.name);
      }
    }
    check_node_count(node.name);
    if (frame != 0) is_repeated_[n] = true;
    new_node_[place] = order_.size();
    order_.push_back(place);
  }

  void check_node_count(const std::string& node) const {
    if (order_.size() + ends_.size() < most_nodes) return;
    throw Error(ErrorKind::invalid_argument, "graph: " + node +
                                                 " and what it reads is needed at too many frames; "
                                                 "they take more than " +
                                                 std::to_string(most_nodes) + " nodes and inputs");
  }

  Value value_at(Index value, int frame) const {
    Value made = once_.values[value];
    made.name = at_frame(made.name, frame);
    made.frame = frame;
    made.readers.clear();
    made.goes_to_host = made.goes_to_host && frame == 0;
    return made;
  }

  void add(Wiring& made, const Place& place) {
    const auto& [n, frame] = place;
    const WiredNode& node = once_.nodes[n];
    const Index index = made.nodes.size();
    WiredNode copy;
    copy.name = at_frame(node.name, frame);
    copy.plugin = node.plugin;
    copy.origin = n;
    copy.frame = frame;
    copy.is_repeated = is_repeated_[n];
    copy.comes_after.assign(order_.size(), false);
    for (Index port = 0; port < node.inputs.size(); ++port) {
      const FrameRange wanted = range(n, port);
      for (int distance = wanted.first; distance <= wanted.last; ++distance) {
        copy.feeds.push_back({port, distance});
        copy.inputs.emplace_back();
        if (!node.inputs[port]) continue;
        copy.inputs.back() = source(made, *node.inputs[port], frame + distance, copy);
        auto& readers = made.values[*copy.inputs.back()].readers;
        if (readers.empty() || readers.back() != index) readers.push_back(index);
      }
    }
    for (Index port = 0; port < node.outputs.size(); ++port) {
      const Index value = node.outputs[port];
      const bool is_wanted =
          value != unused && (frame == 0 || !node.plugin->outputs[port].optional ||
                              !once_.values[value].readers.empty());
      copy.outputs.push_back(is_wanted ? made.values.size() : unused);
      if (!is_wanted) continue;
      made.values.push_back(value_at(value, frame));
      made.values.back().node = index;
    }
    made.nodes.push_back(std::move(copy));
    made.order.push_back(index);
  }

  // The value, which is there already. If a node makes it, `reader` waits for that.
  Index source(const Wiring& made, Index value, int frame, WiredNode& reader) {
    const Value& from = once_.values[value];
    if (!from.node) return end_value_[{value, frame}];
    const Index before = new_node_[{*from.node, frame}];
    auto& waits_for = reader.waits_for;
    if (std::find(waits_for.begin(), waits_for.end(), before) == waits_for.end()) {
      waits_for.push_back(before);
    }
    for (Index i = 0; i < order_.size(); ++i) {
      if (i == before || made.nodes[before].comes_after[i]) reader.comes_after[i] = true;
    }
    return made.nodes[before].outputs[from.port];
  }

  const Wiring& once_;
  const std::vector<FrameRanges>& frames_;
  std::vector<bool> is_repeated_;
  std::vector<Place> order_;  // of the new nodes
  std::map<Place, Index> new_node_, end_value_;
  std::set<Place> ends_;
};

}  // namespace

Wiring unroll(Wiring once, const std::vector<FrameRanges>& frames) {
  const auto is_one = [](const FrameRanges& ranges) {
    return std::all_of(ranges.begin(), ranges.end(),
                       [](const FrameRange& range) { return range == FrameRange(); });
  };
  if (!std::all_of(frames.begin(), frames.end(), is_one)) return Unroller(once, frames).unroll();
  for (Index n = 0; n < once.nodes.size(); ++n) {
    WiredNode& node = once.nodes[n];
    node.origin = n;
    for (Index port = 0; port < node.inputs.size(); ++port) node.feeds.push_back({port, 0});
  }
  return once;
}

}  // namespace ctxbroker::detail
