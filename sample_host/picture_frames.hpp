// SPDX-License-Identifier: Apache-2.0
// The pictures that a run reads and writes: one for each port of the graph, or a sequence of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "exit_code.hpp"
#include "graph_plan.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

struct Frame {
  std::vector<std::filesystem::path> inputs, outputs;  // in the order of the graph's ports
  std::string name;           // "frame 12: ", or empty if there is only this picture
  std::int64_t position = 0;  // its number
};

// Those that are to be done: with --skip-existing, not those whose outputs are all there. Throws
// Failure: usage, if a name has no place for the frame's number; input, if one's input is missing.
std::vector<Frame> list_frames(const Options& options, const GraphPlan& plan);

// Runs `step`, whose errors say which frame they are about.
template <typename Step>
auto in_frame(const Frame& frame, const Step& step) {
  if (frame.name.empty()) return step();
  try {
    return step();
  } catch (const Failure& failure) {
    throw Failure(failure, frame.name);
  } catch (const Error& error) {
    throw Failure(error, frame.name);
  }
}

// Does what in_frame does for `frame`, while the frames from `first` to `last` are in the graph.
// After a fault on the device, the error names all of these.
template <typename Step>
auto in_frames(const Frame& first, const Frame& last, const Frame& frame, const Step& step) {
  const auto several = [&] {
    return "one of the frames " + std::to_string(first.position) + " to " +
           std::to_string(last.position) + ": ";
  };
  if (first.position == last.position) return in_frame(frame, step);
  try {
    return step();
  } catch (const Failure& failure) {
    throw Failure(failure, frame.name);
  } catch (const Error& error) {
    throw Failure(error, is_fault(error) ? several() : frame.name);
  }
}

}  // namespace ctxbroker::sample_host
