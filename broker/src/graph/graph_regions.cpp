// SPDX-License-Identifier: Apache-2.0
// Graph: which parts of pictures a job needs.
#include <algorithm>
#include <cstring>
#include <string>

#include "ctxbroker/error.hpp"
#include "graph/graph_impl.hpp"
#include "graph/job_check.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

constexpr std::size_t most_returned = 64;  // as many jobs as can be in flight

std::uint64_t rows_bytes(const Format& format, const Rectangle& region) noexcept {
  return row_bytes(format, region.width) * region.height;
}

}  // namespace

class Graph::Impl::Asker : public RegionAnswers {
 public:
  explicit Asker(const Impl& graph) : graph_(graph), nodes_(graph.nodes) {}

  void get_extent(Index node, const PortExtents& inputs, Index output, Rectangle& extent) override {
    nodes_[node].instance->get_extent(*inputs.extents, inputs.position, output, extent);
  }
  void get_region(Index node, const PortExtents& inputs, Index output, const Rectangle& wanted,
                  Index input, Rectangle& needed) override {
    nodes_[node].instance->get_region(*inputs.extents, inputs.position, output, wanted, input,
                                      needed);
  }
  Error breach(Index node, const char* function, const std::string& why) override {
    return graph_.breach(node, function, why);
  }

 private:
  const Impl& graph_;
  const std::vector<Node>& nodes_;
};

// Returns the layout of an image in the buffer. A value of another kind lies at the buffer's
// beginning.
Layout Graph::Impl::layout(const JobFlight& flight, Index value, Index buffer) const noexcept {
  Layout layout = flight.regions.values[value];
  if (buffer != plan.of_value[value]) layout.offset = 0;  // a copy has what is before it cut off
  return layout;
}

void Graph::Impl::find_regions(JobRegions& regions, const JobInfo& job) {
  regions.values.resize(wiring.values.size());
  if (wiring.media != Media::image) return;
  Asker asker(*this);
  detail::find_regions(wiring, job, asker, regions);
  check_returned_regions(regions, job);
  check_regions(wiring, regions, sizes);
  lay_out(wiring, plan, regions);
}

void Graph::Impl::prepare_query(const JobInfo& job) {
  if (wiring.media != Media::image) {
    throw Error(ErrorKind::invalid_argument, "graph: audio has no regions");
  }
  check_info(wiring, job);
  if (renew_lost_nodes()) is_renewed = true;
  for (const Node& node : nodes) node.instance->take_parameters();
}

std::vector<ImageRegion> Graph::Impl::output_extents(const JobInfo& job) {
  prepare_query(job);
  JobRegions regions;
  Asker asker(*this);
  find_extents(wiring, job, asker, regions);
  std::vector<ImageRegion> extents;
  for (const Index value : wiring.outputs) extents.push_back(image_region(regions.extents[value]));
  return extents;
}

std::vector<ImageRegion> Graph::Impl::input_regions(const JobInfo& job) {
  prepare_query(job);
  JobRegions regions;
  Asker asker(*this);
  detail::find_regions(wiring, job, asker, regions);
  std::vector<ImageRegion> needed;
  for (Index v = 0; v < job_inputs.size(); ++v) {
    needed.push_back(image_region(regions.values[v].region));
  }
  if (returned_regions.size() == most_returned) returned_regions.pop_front();
  returned_regions.push_back({job, needed});
  return needed;
}

// The host's memory holds what it was told last for such a job, and a plug-in may answer otherwise
// now.
void Graph::Impl::check_returned_regions(const JobRegions& regions, const JobInfo& job) const {
  const auto told =
      std::find_if(returned_regions.rbegin(), returned_regions.rend(),
                   [&](const ReturnedRegions& one) { return asks_the_same(one.job, job); });
  if (told == returned_regions.rend()) return;
  for (Index v = 0; v < told->inputs.size(); ++v) {
    const Rectangle before = rectangle(told->inputs[v]);
    const Rectangle& now = regions.values[v].region;
    if (equal(before, now)) continue;
    throw Error(ErrorKind::plugin_failed,
                "graph: the job needs " + to_text(now) + " of " + wiring.values[v].name +
                    ", and input_regions said " + to_text(before) +
                    "; ask again after you have changed a parameter. If you changed none, a "
                    "plug-in has answered the same question in two ways");
  }
}

bool Graph::Impl::is_image(Index value) const noexcept {
  return wiring.media == Media::image && wiring.values[value].format.result_bytes == 0;
}

std::uint64_t Graph::Impl::bytes_of(const JobFlight& flight, Index value) const noexcept {
  const Format& format = wiring.values[value].format;
  if (is_image(value)) return detail::bytes_of(flight.regions.values[value], format);
  return detail::bytes_of(format, flight.info.width, flight.info.height);
}

// Returns the layout of the part that the host gets of a value, in the value's buffer.
Layout Graph::Impl::given_part(const JobFlight& flight, Index value) const noexcept {
  const Format& format = wiring.values[value].format;
  if (is_image(value)) return part_of(flight.regions.values[value], format, flight.regions.wanted);
  const std::uint64_t bytes = bytes_of(flight, value);  // as one long row
  return {0, bytes, {0, 0, 1, 1}};
}

std::uint64_t Graph::Impl::given_row_bytes(const JobFlight& flight, Index value) const noexcept {
  const Format& format = wiring.values[value].format;
  return is_image(value) ? row_bytes(format, flight.regions.wanted.width) : bytes_of(flight, value);
}

// `from` holds the value from the layout's first pixel on.
void Graph::Impl::give_rows(const JobFlight& flight, Index value, const Layout& layout, void* to,
                            const void* from) const noexcept {
  const std::uint64_t row = given_row_bytes(flight, value);
  const std::uint64_t rows = layout.region.height;
  if (layout.pitch == row) {
    broker.copy_crew().copy(to, from, row * rows);
    return;
  }
  for (std::uint64_t y = 0; y < rows; ++y) {
    std::memcpy(static_cast<char*>(to) + y * row, static_cast<const char*>(from) + y * layout.pitch,
                row);
  }
}

void Graph::Impl::give_dry_image(const JobFlight& flight, Index port) const noexcept {
  const Index output = wiring.outputs[port];
  const Format& format = wiring.values[output].format;
  const Rectangle& wanted = flight.regions.wanted;
  for (Index v = 0; v < job_inputs.size(); ++v) {
    const Layout& layout = flight.regions.values[v];
    if (job_inputs[v].frame != 0 || !(wiring.values[v].format == format) ||
        !contains(layout.region, wanted)) {
      continue;
    }
    const Layout part = part_of({0, layout.pitch, layout.region}, format, wanted);
    give_rows(flight, output, part, flight.outputs[port],
              static_cast<const char*>(flight.uploads[v].get()) + part.offset);
    return;
  }
  std::memset(flight.outputs[port], 0, rows_bytes(format, wanted));
}

// An image that passes from a node's input to its output, row by row if need be.
void Graph::Impl::pass_image(JobFlight& flight, Index node, Index feed, Index value) {
  const WiredNode& wired = wiring.nodes[node];
  const Format& format = wiring.values[value].format;
  const Layout to = flight.regions.values[value];
  const Rectangle& from_region = flight.regions.feeds[node][feed];
  if (!contains(from_region, to.region)) {
    throw breach(node, "process",
                 "answered CTXB_BYPASS, and its input " +
                     wired.plugin->inputs[wired.feeds[feed].port].id + " has " +
                     to_text(from_region) + ", which do not contain " + to_text(to.region));
  }
  const Index source = *wired.inputs[feed];
  const Index buffer = plan.copies[node][feed].value_or(plan.of_value[source]);
  const Layout from = part_of(layout(flight, source, buffer), format, to.region);
  const CUdeviceptr first = flight.buffers[buffer].get() + from.offset;
  const CUdeviceptr target = flight.buffers[plan.of_value[value]].get() + to.offset;
  if (first == target) return;
  const std::uint64_t row = row_bytes(format, to.region.width);
  const bool is_one = from.pitch == row && to.pitch == row;
  const std::uint64_t pieces = is_one ? 1 : to.region.height;
  const std::uint64_t bytes = is_one ? row * to.region.height : row;
  for (std::uint64_t y = 0; y < pieces; ++y) {
    check_call(node,
               nodes[node].lease->table().memcpy_dtod_async(
                   target + y * to.pitch, first + y * from.pitch, bytes, nodes[node].stream),
               "cuMemcpyDtoDAsync_v2", "the input cannot be passed on");
  }
}

}  // namespace ctxbroker
