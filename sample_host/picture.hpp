// SPDX-License-Identifier: Apache-2.0
// One frame on its way from its files through the graph to the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "files/image.hpp"
#include "files/output_file.hpp"
#include "frame_store.hpp"
#include "graph_plan.hpp"
#include "options.hpp"
#include "picture_frames.hpp"
#include "report.hpp"
#include "tiles.hpp"

namespace ctxbroker::sample_host {

// The channels of each port, as GraphPort has them.
std::vector<std::uint32_t> image_channels(const std::vector<PlannedPort>& ports);
// Bytes of their pixels.
PixelBytes pixel_bytes(const GraphPlan& plan, SampleType samples);

class Picture {
 public:
  // Reads the inputs and chooses the outputs' formats. Images are halves if all of them and the
  // outputs can be, and `halves` allows it. Any thread. Throws Failure.
  Picture(const Frame& frame, const GraphPlan& plan, const Options& options, bool halves,
          FrameStore& store);

  // Reads the frames around this one that the graph needs, see Graph::job_inputs. It does nothing
  // if there are none, or when it was called already. Before `buffers`. Any thread. Throws Failure.
  void read_neighbours(const std::vector<JobInput>& needed, FrameStore& store);

  const Frame& frame() const noexcept { return *frame_; }
  std::uint32_t width() const noexcept { return inputs_.front().width; }
  std::uint32_t height() const noexcept { return inputs_.front().height; }

  SampleType samples() const noexcept;
  // Before `buffers`.
  void use_floats();

  // Begins the outputs' files. One thread for all pictures. Throws Failure.
  void open_outputs();
  // The graph's job, after open_outputs. The memory is the picture's. Call it once. `result_bytes`
  // is of each output; 0: it is an image.
  // With `keeps_inputs` no output takes the memory of an input.
  JobBuffers buffers(const std::vector<std::uint32_t>& result_bytes, bool keeps_inputs);
  // Returns what the job gave to an output of results.
  const void* results(std::size_t output) const { return narrow_outputs_[output].data(); }
  // When the job is finished: each file is then complete or not there. Any thread. Throws Failure.
  void write(const Options& options);

  // In the order of the ports.
  const std::vector<FileFacts>& input_facts() const noexcept { return input_facts_; }
  const std::vector<FileFacts>& output_facts() const noexcept { return output_facts_; }

  std::uint64_t job = 0;  // what Graph::submit said

 private:
  // The memory of a port that does not have four channels, or of results as their bytes.
  using Samples = std::vector<float>;

  bool can_be_halves() const;

  const Frame* frame_;                   // borrowed
  const GraphPlan* plan_;                // borrowed
  std::vector<Image> inputs_, outputs_;  // without inputs, there is one to be like
  std::vector<Samples> narrow_inputs_, narrow_outputs_;
  std::vector<JobInput> needed_;   // what the graph gets; empty: just the inputs
  std::vector<Image> neighbours_;  // of each of these; without pixels for the frame itself
  std::vector<Samples> narrow_neighbours_;
  std::vector<ImageFormat> formats_;  // of the outputs
  std::vector<std::unique_ptr<OutputFile>> files_;
  std::vector<FileFacts> input_facts_, output_facts_;
};

}  // namespace ctxbroker::sample_host
