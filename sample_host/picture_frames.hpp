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

}  // namespace ctxbroker::sample_host
