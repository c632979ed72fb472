// SPDX-License-Identifier: Apache-2.0
// Instance: what an image plug-in needs of its inputs.
#include <string>

#include "ctxbroker/error.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {

const FrameRanges& Instance::frames() {
  FrameRanges& ranges = activation_->frames;
  if (!ranges.empty() || description_.inputs.empty()) return ranges;
  FrameRanges answers(description_.inputs.size());
  const bool asks = description_.media == Media::image && frames_ != nullptr;
  for (std::size_t input = 0; asks && input < answers.size(); ++input) {
    std::int32_t first = 0, last = 0;
    ctxb_status status = CTXB_ERROR;
    failures_.clear();
    const CallOutcome outcome = call_main(nowhere(), "get_frames", [&] {
      status = frames_->get_frames(object_, static_cast<std::uint32_t>(input), &first, &last);
    });
    if (!outcome.ran() || status != CTXB_OK) throw failure("get_frames", outcome, status);
    if (first > 0 || last < 0 || first < -CTXB_FRAMES_MAX || last > CTXB_FRAMES_MAX) {
      const std::string why = "asks for the frames " + std::to_string(first) + " to " +
                              std::to_string(last) + " of its input " +
                              description_.inputs[input].id + "; the first has to be from " +
                              std::to_string(-CTXB_FRAMES_MAX) + " to 0 and the last from 0 to " +
                              std::to_string(CTXB_FRAMES_MAX);
      strike("get_frames", why.c_str());
      throw Error(ErrorKind::plugin_failed, "plug-in " + description_.short_name + " " + why,
                  {.call = "get_frames", .tenant = tenant().name});
    }
    answers[input] = {first, last};
  }
  ranges = std::move(answers);
  return ranges;
}

// On the thread of a job, which waits for nobody: so no [main] call. As in a job, nobody tells the
// plug-in of a loss meanwhile.
template <typename Ask>
void Instance::ask_region(const char* function, const std::vector<ctxb_rectangle>& inputs,
                          std::int64_t position, const Ask& ask) {
  ctxb_region_question question{};
  question.size = sizeof question;
  question.input_count = static_cast<std::uint32_t>(inputs.size());
  question.extents = inputs.data();
  question.position = position;
  question.parameters = parameters_.snapshot();
  question.parameter_count = parameters_.count();
  Phase before = Phase::active;
  failures_.clear();
  if (!phase_.compare_exchange_strong(before, Phase::asked, std::memory_order_acq_rel)) {
    const Processed refused = before == Phase::lost ? lost(function) : busy(before);
    throw failure(function, refused.outcome, refused.status);
  }
  ctxb_status status = CTXB_ERROR;
  const RunningSide running(host_);
  const CallOutcome outcome =
      call_plugin(nowhere(), call(function), [&] { status = ask(question); });
  phase_.store(Phase::active, std::memory_order_release);
  if (!outcome.ran() || status != CTXB_OK) throw failure(function, outcome, status);
}

void Instance::get_extent(const std::vector<ctxb_rectangle>& inputs, std::int64_t position,
                          std::size_t output, ctxb_rectangle& extent) {
  ask_region("get_extent", inputs, position, [&](const ctxb_region_question& question) {
    return regions_->get_extent(object_, &question, static_cast<std::uint32_t>(output), &extent);
  });
}

void Instance::get_region(const std::vector<ctxb_rectangle>& inputs, std::int64_t position,
                          std::size_t output, const ctxb_rectangle& wanted, std::size_t input,
                          ctxb_rectangle& needed) {
  ask_region("get_region", inputs, position, [&](const ctxb_region_question& question) {
    return regions_->get_region(object_, &question, static_cast<std::uint32_t>(output), &wanted,
                                static_cast<std::uint32_t>(input), &needed);
  });
}

}  // namespace ctxbroker::detail
