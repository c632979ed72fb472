// SPDX-License-Identifier: Apache-2.0
// Checks the jobs of a graph in a worker, and finds where their buffers are. All of it is known
// without the worker.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "ctxbroker/error.hpp"
#include "graph/job_changes.hpp"
#include "graph/job_check.hpp"
#include "graph/rectangle.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;  // of one job

std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Returns the bytes of a buffer of pixels or frames. A size that does not fit into the number is
// too large in any case.
std::uint64_t buffer_bytes(std::uint64_t width, std::uint64_t height, std::uint64_t channels,
                           SampleType samples) {
  std::uint64_t bytes = samples == SampleType::float16 ? 2 : 4;
  for (const std::uint64_t factor : {width, height, channels}) {
    if (factor != 0 && bytes > most_bytes / factor) {
      refuse_job("a buffer of the job has more than 1 TiB");
    }
    bytes *= factor;
  }
  return bytes;
}

}  // namespace

// The results of an analyser, if the output gets them; else 0. It makes texts, so it is asked for
// an activation and not for a job.
std::uint32_t GraphClient::find_result_bytes(std::size_t output) const {
  if (description_.edges.empty()) return nodes_.back().description.outputs.front().result_bytes;
  for (const GraphEdge& edge : description_.edges) {
    if (edge.to != description_.outputs[output].name) continue;
    const std::size_t dot = edge.from.find('.');
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (description_.nodes[i].name != edge.from.substr(0, dot)) continue;
      for (const PortDescription& port : nodes_[i].description.outputs) {
        if (dot == std::string::npos || edge.from.substr(dot + 1) == port.id) {
          return port.result_bytes;
        }
      }
    }
  }
  return 0;
}

// The bytes of each buffer, from what the host knows: its ports, its job, and what input_regions
// has told it.
void GraphClient::measure_buffers(const JobBuffers& buffers, const JobInfo& job) {
  if (buffers.inputs.size() != job_inputs_.size() ||
      buffers.outputs.size() != description_.outputs.size()) {
    refuse_job("the job has " + std::to_string(buffers.inputs.size()) + " inputs and " +
               std::to_string(buffers.outputs.size()) + " outputs, and the graph needs " +
               std::to_string(job_inputs_.size()) + " and " +
               std::to_string(description_.outputs.size()));
  }
  const auto is_null = [](const void* buffer) { return buffer == nullptr; };
  if (std::any_of(buffers.inputs.begin(), buffers.inputs.end(), is_null) ||
      std::any_of(buffers.outputs.begin(), buffers.outputs.end(), is_null)) {
    refuse_job("a buffer of the job is null");
  }
  const bool is_audio = sizes_.sample_rate > 0;
  const bool is_part = job.region.width != 0 || !job.extents.empty();
  if (is_part && !asks_the_same(job, regions_of_)) {
    refuse_job("the job has a region or extents; call input_regions for it right before");
  }
  if (is_part && regions_.size() != job_inputs_.size()) {
    throw Error(
        ErrorKind::context_lost,
        "graph: the worker has started again since input_regions; call input_regions again");
  }
  const auto check_fits = [&](std::uint32_t width, std::uint32_t height) {
    if (width <= sizes_.max_width && height <= sizes_.max_height) return;
    const auto text = [](std::uint32_t x, std::uint32_t y) {
      return std::to_string(x) + " x " + std::to_string(y);
    };
    refuse_job("a job of " + text(width, height) + " does not fit into " +
               text(sizes_.max_width, sizes_.max_height) +
               ", the max_width and max_height of the graph");
  };
  const auto bytes_of = [&](const GraphPort& port, std::uint32_t width, std::uint32_t height) {
    check_fits(width, height);  // the host's buffer, too, may end there
    if (is_audio) {
      return buffer_bytes(width, 1, port.channels != 0 ? port.channels : job.height, port.samples);
    }
    return buffer_bytes(width, height, port.channels != 0 ? port.channels : 4, port.samples);
  };
  sizes_of_.clear();
  for (std::size_t i = 0; i < job_inputs_.size(); ++i) {
    const GraphPort& port = description_.inputs[job_inputs_[i].input];
    sizes_of_.push_back(is_part ? bytes_of(port, regions_[i].width, regions_[i].height)
                                : bytes_of(port, job.width, job.height));
  }
  const bool has_region = job.region.width != 0;
  for (std::size_t i = 0; i < description_.outputs.size(); ++i) {
    const std::uint32_t results = result_bytes_[i];
    sizes_of_.push_back(results != 0 ? results
                                     : bytes_of(description_.outputs[i],
                                                has_region ? job.region.width : job.width,
                                                has_region ? job.region.height : job.height));
  }
}

std::shared_ptr<LentBlock> GraphClient::find_block(const void* address) const {
  const WorkerImpl& worker = *worker_.impl_;
  if (lent_blocks_.changes != worker.lent_changes()) lent_blocks_ = worker.lent_blocks();
  return lent_blocks_.find(address);
}

// The place of a buffer from `lend`. Any other buffer gets block 0, and `start` gives it an offset.
BufferPlace GraphClient::place_of(const void* buffer, std::uint64_t bytes, Flight& flight) const {
  const auto block = find_block(buffer);
  if (!block) return {0, 0, bytes, 0};
  const auto offset =
      static_cast<std::uint64_t>(static_cast<const std::byte*>(buffer) - block->pages->begin());
  if (bytes > block->pages->bytes() - offset) {
    refuse_job("a buffer of " + std::to_string(bytes) + " bytes begins at byte " +
               std::to_string(offset) + " of a lent block that has " +
               std::to_string(block->pages->bytes()) + "; lend more, or begin earlier");
  }
  flight.lent.push_back(block);
  return {block->handle, offset, bytes, 0};
}

void GraphClient::check_changes(const JobInfo& job, const WorkerJobEvents& events) const {
  check_events(nodes_.front().description.media, events.changes.size(),
               options_.graph.changes_per_job, events.transport);
  std::int64_t before = std::numeric_limits<std::int64_t>::min();
  for (const WorkerParameterChange& change : events.changes) {
    check_change(
        {nullptr, change.parameter, change.offset, change.value, change.ramp_frames, change.from},
        at(change.node).description, job.width);
    check_order(before, change.offset);
    before = change.offset;
  }
}

// Before the worker sees it. A job that is refused changes nothing.
void GraphClient::check_job(Flight& flight, const JobBuffers& buffers, const JobInfo& job,
                            const WorkerJobEvents& events) {
  if (job.width == 0 || job.height == 0) refuse_job("the job's width or height is 0");
  measure_buffers(buffers, job);
  check_changes(job, events);
  if (sizes_.sample_rate > 0) {
    check_rate("the job", job.sample_rate, nodes_.front().description.short_name,
               sizes_.sample_rate);
  }
  std::uint64_t bytes = sizes_of_.size() * sizeof(BufferPlace) +
                        job.extents.size() * sizeof(ImageRegion) +
                        events.changes.size() * sizeof(WorkerParameterChange);
  flight.places.clear();
  flight.lent.clear();
  flight.devices.clear();
  const std::size_t inputs = buffers.inputs.size();
  for (std::size_t i = 0; i < sizes_of_.size(); ++i) {
    const void* const buffer = i < inputs ? buffers.inputs[i] : buffers.outputs[i - inputs];
    const GraphPort& port = port_of(i);
    BufferPlace place = port.on_device ? device_place_of(port, buffer, sizes_of_[i], flight)
                                       : place_of(buffer, sizes_of_[i], flight);
    if (place.block == 0) {
      place.offset = aligned(bytes);
      bytes = place.offset + place.bytes;
    }
    flight.places.push_back(place);
  }
  if (bytes > most_bytes) refuse_job("the job's buffers have more than 1 TiB together");
  flight.bytes = aligned(bytes);
  flight.outputs.assign(buffers.outputs.begin(), buffers.outputs.end());
  if (has_dry_sound()) keep_dry(flight, buffers, job);
}

}  // namespace ctxbroker::detail
