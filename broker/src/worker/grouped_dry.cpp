// SPDX-License-Identifier: Apache-2.0
// What a picture is without the plug-ins of a process that is away: the first input of that
// process.
#include <cstring>
#include <numeric>

#include "ctxbroker/error.hpp"
#include "worker/grouped_graph.hpp"

namespace ctxbroker::detail {

void cut_out(void* to, const Rectangle& wanted, const void* from, const Rectangle& there,
             const Format& format) {
  const Rectangle both = common(wanted, there);
  const std::uint64_t row = row_bytes(format, wanted.width), pitch = row_bytes(format, there.width);
  if (!equal(both, wanted)) std::memset(to, 0, row * wanted.height);
  const auto first = [&](const Rectangle& whole) {
    return static_cast<std::uint64_t>(both.y - whole.y) * row_bytes(format, whole.width) +
           row_bytes(format, static_cast<std::uint32_t>(both.x - whole.x));
  };
  if (is_empty(both)) return;
  auto* target = static_cast<std::byte*>(to) + first(wanted);
  const auto* source = static_cast<const std::byte*>(from) + first(there);
  const std::uint64_t bytes = row_bytes(format, both.width);
  for (std::uint32_t y = 0; y < both.height; ++y, target += row, source += pitch) {
    std::memcpy(target, source, bytes);
  }
}

// In one process, all that the host gives goes there, and all that it gets comes from there.
void GroupedGraph::allow_dry_pictures() {
  const bool has_several = groups_.size() > 1;
  has_dry_pictures_ =
      plugins().front()->media == Media::image && (has_several || !groups_.front().in_host);
  if (!has_dry_pictures_ || has_several) return;
  wired_ = with_edges(description_, plugins());
  Group& all = groups_.front();
  all.outputs = connect(graph_of(wired_), plugins()).outputs;
  all.inputs.resize(description_.inputs.size());
  std::iota(all.inputs.begin(), all.inputs.end(), Index{0});
}

bool GroupedGraph::fits(const Rectangle& picture) const noexcept {
  return picture.width <= sizes_.max_width && picture.height <= sizes_.max_height;
}

// The first picture of the same format and frame that the process would read.
Maybe GroupedGraph::source_of(const WiredNode& node, Index output) const noexcept {
  if (!is_image(output)) return {};
  for (Index feed = 0; feed < node.feeds.size(); ++feed) {
    const Index value = *node.inputs[feed];
    const bool has_format = wiring_.values[value].format == wiring_.values[output].format;
    if (node.feeds[feed].frame == 0 && has_format) return value;
  }
  return {};
}

void GroupedGraph::find_dry_extents(const WiredNode& node, const JobInfo& job) noexcept {
  for (const Index value : node.outputs) {
    const Maybe source = source_of(node, value);
    samples_[value].extent =
        source ? samples_[*source].extent : Rectangle{0, 0, job.width, job.height};
  }
}

void GroupedGraph::find_dry_regions(const WiredNode& node) noexcept {
  for (const Index value : node.outputs) {
    Samples& made = samples_[value];
    made.region = made.wanted;
    const Maybe source = source_of(node, value);
    if (!source) continue;
    Samples& from = samples_[*source];
    from.wanted = around(from.wanted, common(made.wanted, from.extent));
  }
}

// In the graph's memory, because an input that is still needed may lie in the host's buffer.
void GroupedGraph::make_dry(const WiredNode& node) {
  for (const Index value : node.outputs) {
    Samples& made = samples_[value];
    const Format& format = wiring_.values[value].format;
    if (!is_image(value)) {
      std::memset(made.room(), 0, format.result_bytes);
      continue;
    }
    if (!fits(made.region)) {
      throw Error(ErrorKind::invalid_argument,
                  "graph: without the plug-ins that are away, the job needs " +
                      to_text(made.region) + " of " + wiring_.values[value].name +
                      ", which is larger than max_width and max_height; activate the graph with "
                      "larger sizes");
    }
    const Maybe source = source_of(node, value);
    const void* const from = source ? samples_[*source].data : nullptr;
    const Rectangle there = source ? samples_[*source].region : Rectangle{};
    cut_out(made.room(), made.region, from, there, format);
  }
}

}  // namespace ctxbroker::detail
