// SPDX-License-Identifier: Apache-2.0
#include "picture_frames.hpp"

#include <algorithm>
#include <optional>

#include "files/input_file.hpp"
#include "files/start.hpp"
#include "frames.hpp"
#include "run_files.hpp"

namespace ctxbroker::sample_host {

namespace {

// Without --frames, a % is an ordinary character. But then there is a file of that name.
void check_inputs(const std::vector<std::filesystem::path>& inputs) {
  for (const std::filesystem::path& input : inputs) {
    std::error_code error;
    if (std::filesystem::exists(from_start(input), error) || !is_frame_name(input)) continue;
    throw input_failure(input, "there is no such file; if it is a sequence, add --frames A-B");
  }
}

// The rows of frames that are left out, and whole pictures, would be missing.
void check_results(const Options& options, const GraphPlan& plan) {
  const char* const option = options.skip_existing ? "--skip-existing"
                             : options.tile        ? "--tile"
                                                   : nullptr;
  for (const PlannedPort& port : plan.outputs) {
    if (option == nullptr || !port.is_results()) continue;
    throw Failure(ExitCode::usage,
                  std::string(option) + ": \"" + port.file.string() +
                      "\" gets results of every whole image; leave the option out");
  }
}

bool all_exist(const std::vector<std::filesystem::path>& files) {
  return std::all_of(files.begin(), files.end(), [](const std::filesystem::path& file) {
    std::error_code error;
    return std::filesystem::exists(from_start(file), error);
  });
}

}  // namespace

std::vector<Frame> list_frames(const Options& options, const GraphPlan& plan) {
  const std::vector<std::filesystem::path> inputs = files_of(plan.inputs);
  const std::vector<std::filesystem::path> outputs = files_of(plan.outputs);
  check_results(options, plan);
  if (!options.frames) {
    check_inputs(inputs);
    for (const std::filesystem::path& input : inputs) check_input_file(input);
    return {{inputs, outputs, "", 0}};
  }
  const std::vector<FrameName> input_names(inputs.begin(), inputs.end());
  // Results of all frames go to one file.
  std::vector<std::optional<FrameName>> output_names;
  for (const PlannedPort& port : plan.outputs) {
    output_names.push_back(port.is_results() ? std::nullopt : std::optional<FrameName>(port.file));
  }
  std::vector<Frame> frames;
  for (std::uint32_t number = options.frames->first; number <= options.frames->last; ++number) {
    Frame frame{{}, {}, "frame " + std::to_string(number) + ": ", number};
    for (const FrameName& name : input_names) frame.inputs.push_back(name.of(number));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      frame.outputs.push_back(output_names[i] ? output_names[i]->of(number) : outputs[i]);
    }
    if (options.skip_existing && all_exist(frame.outputs)) continue;
    in_frame(frame, [&] {
      for (const std::filesystem::path& input : frame.inputs) check_input_file(input);
    });
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace ctxbroker::sample_host
