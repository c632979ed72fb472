// SPDX-License-Identifier: Apache-2.0
#include "picture_frames.hpp"

#include <algorithm>

#include "files/input_file.hpp"
#include "frames.hpp"
#include "report_output.hpp"

namespace ctxbroker::sample_host {

namespace {

std::vector<std::filesystem::path> files_of(const std::vector<PlannedEnd>& ends) {
  std::vector<std::filesystem::path> files;
  for (const PlannedEnd& end : ends) files.push_back(end.file);
  return files;
}

// An output may be an input, which is read before it is replaced.
void check_outputs(const std::vector<std::filesystem::path>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t other = 0; other < i; ++other) {
      if (!same_place(outputs[i], outputs[other])) continue;
      throw Failure(ExitCode::usage, "two outputs are the file \"" + outputs[i].string() +
                                         "\"; give each a file of its own");
    }
  }
}

// Without --frames, a % is an ordinary character. But then there is a file of that name.
void check_inputs(const std::vector<std::filesystem::path>& inputs) {
  for (const std::filesystem::path& input : inputs) {
    std::error_code error;
    if (std::filesystem::exists(input, error) || !is_frame_name(input)) continue;
    throw input_failure(input, "there is no such file; if it is a sequence, add --frames A-B");
  }
}

bool all_exist(const std::vector<std::filesystem::path>& files) {
  return std::all_of(files.begin(), files.end(), [](const std::filesystem::path& file) {
    std::error_code error;
    return std::filesystem::exists(file, error);
  });
}

}  // namespace

std::vector<Frame> list_frames(const Options& options, const GraphPlan& plan) {
  const std::vector<std::filesystem::path> inputs = files_of(plan.inputs);
  const std::vector<std::filesystem::path> outputs = files_of(plan.outputs);
  check_outputs(outputs);
  if (!options.frames) {
    check_inputs(inputs);
    return {{inputs, outputs, "", 0}};
  }
  const std::vector<FrameName> input_names(inputs.begin(), inputs.end());
  const std::vector<FrameName> output_names(outputs.begin(), outputs.end());
  std::vector<Frame> frames;
  for (std::uint32_t number = options.frames->first; number <= options.frames->last; ++number) {
    Frame frame{{}, {}, "frame " + std::to_string(number) + ": ", number};
    for (const FrameName& name : input_names) frame.inputs.push_back(name.of(number));
    for (const FrameName& name : output_names) frame.outputs.push_back(name.of(number));
    if (options.skip_existing && all_exist(frame.outputs)) continue;
    in_frame(frame, [&] {
      for (const std::filesystem::path& input : frame.inputs) check_input_file(input);
    });
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace ctxbroker::sample_host
