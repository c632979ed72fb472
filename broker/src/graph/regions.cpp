// SPDX-License-Identifier: Apache-2.0
#include "graph/regions.hpp"

#include <algorithm>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void refuse_region(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

std::uint64_t pixel_bytes(const Format& format) noexcept {
  return row_bytes(format, 1);
}

class Finder {
 public:
  Finder(const Wiring& wiring, const JobInfo& job, RegionAnswers& answers, JobRegions& regions)
      : wiring_(wiring), job_(job), answers_(answers), regions_(regions) {}

  void find_all_extents() {
    regions_.extents.assign(wiring_.values.size(), {});
    regions_.values.assign(wiring_.values.size(), {});
    regions_.feeds.resize(wiring_.nodes.size());
    take_inputs();
    for (const Index n : wiring_.order) find_extents(n);
  }

  // After the extents.
  void find_all_needs() {
    want_outputs();
    for (auto n = wiring_.order.rbegin(); n != wiring_.order.rend(); ++n) find_needs(*n);
    if (is_empty(rectangle(job_.region)) && job_.extents.empty()) take_whole_inputs();
  }

 private:
  bool is_image(Index value) const {
    return value != unused && wiring_.values[value].format.result_bytes == 0;
  }
  Rectangle& region(Index value) { return regions_.values[value].region; }
  const std::string& port_name(Index n, Index port) const {
    return wiring_.nodes[n].plugin->inputs[port].id;
  }

  void take_inputs() {
    for (Index v = 0; v < wiring_.values.size() && !wiring_.values[v].node; ++v) {
      const Index input = wiring_.values[v].port;
      regions_.extents[v] = job_.extents.empty() ? frame() : rectangle(job_.extents.at(input));
      if (is_valid(regions_.extents[v])) continue;
      refuse_region("the extent of the input \"" + wiring_.values[v].name + "\", " +
                    to_text(regions_.extents[v]) + ", is empty or out of range");
    }
  }
  // The host says nothing about parts, so it has whole pictures, whatever the plug-ins need.
  void take_whole_inputs() {
    for (Index v = 0; v < wiring_.values.size() && !wiring_.values[v].node; ++v) {
      region(v) = regions_.extents[v];
    }
  }
  Rectangle frame() const { return {0, 0, job_.width, job_.height}; }

  // Returns the extents of the plug-in's inputs, for a query. All frames of one input must have the
  // same extent.
  PortExtents inputs(Index n) {
    const WiredNode& node = wiring_.nodes[n];
    regions_.ports.assign(node.plugin->inputs.size(), {});
    for (Index feed = 0; feed < node.inputs.size(); ++feed) {
      if (!node.inputs[feed]) continue;
      Rectangle& port = regions_.ports[node.feeds[feed].port];
      const Rectangle& extent = regions_.extents[*node.inputs[feed]];
      if (!is_empty(port) && !equal(port, extent)) {
        refuse_region("the frames of " + node.name + '.' + port_name(n, node.feeds[feed].port) +
                      " differ in extent: " + to_text(port) + ", and " + to_text(extent));
      }
      port = extent;
    }
    return {&regions_.ports, job_.position + node.frame};
  }

  // The extent of the first input, or of the job if there is none.
  Rectangle usual_extent() const {
    for (const Rectangle& port : regions_.ports) {
      if (!is_empty(port)) return port;
    }
    return frame();
  }

  void find_extents(Index n) {
    const WiredNode& node = wiring_.nodes[n];
    const PortExtents given = inputs(n);
    const Rectangle usual = usual_extent();
    if (!node.asks_regions) check_equal_extents(n, usual);
    for (Index output = 0; output < node.outputs.size(); ++output) {
      if (!is_image(node.outputs[output])) continue;
      Rectangle& extent = regions_.extents[node.outputs[output]];
      extent = usual;
      if (!node.asks_regions) continue;
      answers_.get_extent(n, given, output, extent);
      if (is_valid(extent)) continue;
      throw answers_.breach(n, "get_extent",
                            "answers that its output " + node.plugin->outputs[output].id + " (" +
                                node.name + ") has " + to_text(extent) +
                                "; it needs at least one pixel, and coordinates from -2^30 to "
                                "2^30");
    }
  }

  void check_equal_extents(Index n, const Rectangle& usual) const {
    for (Index port = 0; port < regions_.ports.size(); ++port) {
      const Rectangle& one = regions_.ports[port];
      if (is_empty(one) || equal(one, usual)) continue;
      refuse_region("the inputs of " + wiring_.nodes[n].name +
                    " differ in extent, which its plug-in does " +
                    "not expect: " + port_name(n, port) + " has " + to_text(one) +
                    ", and another one " + to_text(usual));
    }
  }

  void want_outputs() {
    regions_.wanted = is_empty(rectangle(job_.region)) ? frame() : rectangle(job_.region);
    if (!is_valid(regions_.wanted)) {
      refuse_region("the job's region, " + to_text(regions_.wanted) + ", is empty or out of range");
    }
    for (const Index value : wiring_.outputs) {
      if (!is_image(value)) continue;
      if (!contains(regions_.extents[value], regions_.wanted)) {
        refuse_region("the job's region, " + to_text(regions_.wanted) + ", is not inside " +
                      wiring_.values[value].name + ", which has " +
                      to_text(regions_.extents[value]));
      }
      region(value) = regions_.wanted;
    }
  }

  // All that read the node's outputs have said what they need of them.
  void find_needs(Index n) {
    const WiredNode& node = wiring_.nodes[n];
    std::vector<Rectangle>& feeds = regions_.feeds[n];
    feeds.assign(node.feeds.size(), {});
    const PortExtents given = inputs(n);
    Rectangle all{};
    bool has_results = false;
    for (const Index value : node.outputs) {
      if (is_image(value)) all = around(all, region(value));
      has_results = has_results || (value != unused && !is_image(value));
    }
    // Results are about the whole picture.
    const bool whole = has_results || is_empty(all) || (!node.asks_regions && !is_per_pixel(node));
    for (Index output = 0; output < node.outputs.size(); ++output) {
      const Index value = node.outputs[output];
      if (!is_image(value)) continue;
      // The plug-in writes also what nobody reads.
      if (whole || (node.asks_regions && is_empty(region(value)))) {
        region(value) = regions_.extents[value];
      } else if (!node.asks_regions) {
        region(value) = all;
      }
    }
    for (Index feed = 0; feed < feeds.size(); ++feed) {
      if (!node.inputs[feed]) continue;
      const Index value = *node.inputs[feed];
      if (whole) {
        feeds[feed] = regions_.extents[value];
      } else if (node.asks_regions) {
        feeds[feed] = ask(n, given, node.feeds[feed].port);
      } else {
        feeds[feed] = all;
      }
      region(value) = around(region(value), feeds[feed]);
    }
  }

  static bool is_per_pixel(const WiredNode& node) {
    return (node.plugin->flags & CTXB_PLUGIN_PER_PIXEL) != 0;
  }

  // Returns the part of an input that all outputs together need.
  Rectangle ask(Index n, const PortExtents& given, Index port) {
    const WiredNode& node = wiring_.nodes[n];
    const Rectangle& extent = regions_.ports[port];
    Rectangle all{};
    for (Index output = 0; output < node.outputs.size(); ++output) {
      const Index value = node.outputs[output];
      if (!is_image(value)) continue;
      Rectangle needed = extent;
      answers_.get_region(n, given, output, region(value), port, needed);
      if (!is_valid(needed) || !contains(extent, needed)) {
        throw answers_.breach(n, "get_region",
                              "answers that it needs " + to_text(needed) + " of its input " +
                                  port_name(n, port) + " (" + node.name + "), which has " +
                                  to_text(extent) +
                                  "; it needs at least one pixel, and none outside");
      }
      all = around(all, needed);
    }
    return all;
  }

  const Wiring& wiring_;
  const JobInfo& job_;
  RegionAnswers& answers_;
  JobRegions& regions_;
};

}  // namespace

Layout part_of(const Layout& whole, const Format& format, const Rectangle& region) noexcept {
  const auto distance = [](std::int32_t from, std::int32_t to) {
    return static_cast<std::uint64_t>(std::int64_t{to} - from);
  };
  return {whole.offset + distance(whole.region.y, region.y) * whole.pitch +
              distance(whole.region.x, region.x) * pixel_bytes(format),
          whole.pitch, region};
}

std::uint64_t bytes_of(const Layout& layout, const Format& format) noexcept {
  if (is_empty(layout.region)) return 0;
  return std::uint64_t{layout.region.height - 1} * layout.pitch +
         row_bytes(format, layout.region.width);
}

void find_regions(const Wiring& wiring, const JobInfo& job, RegionAnswers& answers,
                  JobRegions& regions) {
  Finder finder(wiring, job, answers, regions);
  finder.find_all_extents();
  finder.find_all_needs();
}

void find_extents(const Wiring& wiring, const JobInfo& job, RegionAnswers& answers,
                  JobRegions& regions) {
  Finder(wiring, job, answers, regions).find_all_extents();
}

void check_regions(const Wiring& wiring, const JobRegions& regions, const ActivationSizes& sizes) {
  for (Index v = 0; v < wiring.values.size(); ++v) {
    const Rectangle& region = regions.values[v].region;
    if (region.width <= sizes.max_width && region.height <= sizes.max_height) continue;
    refuse_region("a job of " + std::to_string(region.width) + " x " +
                  std::to_string(region.height) + " does not fit into " +
                  std::to_string(sizes.max_width) + " x " + std::to_string(sizes.max_height) +
                  ": it needs that many pixels of " + wiring.values[v].name);
  }
}

void lay_out(const Wiring& wiring, const BufferPlan& plan, JobRegions& regions) noexcept {
  const auto lay = [&](Index value) {
    const Format& format = wiring.values[value].format;
    Layout& layout = regions.values[value];
    if (const Maybe source = plan.in_place_of[value]) {
      layout = part_of(regions.values[*source], format, layout.region);
    } else {
      layout.offset = 0;
      layout.pitch = row_bytes(format, layout.region.width);
    }
  };
  for (Index v = 0; v < wiring.values.size() && !wiring.values[v].node; ++v) lay(v);
  for (const Index n : wiring.order) {
    for (const Index value : wiring.nodes[n].outputs) {
      if (value != unused && wiring.values[value].format.result_bytes == 0) lay(value);
    }
  }
}

}  // namespace ctxbroker::detail
