// SPDX-License-Identifier: Apache-2.0
#include "probe/questions.hpp"

#include <algorithm>
#include <utility>

namespace ctxbroker {

const char* to_string(ProbeOutcome outcome) noexcept {
  return detail::name_of(detail::outcome_names, outcome);
}

const ProbeAnswer* ProbeReport::find(std::string_view name) const& noexcept {
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [&](const ProbeAnswer& one) { return one.name == name; });
  return found == answers.end() ? nullptr : &*found;
}

namespace detail {

const std::vector<Question>& questions() {
  constexpr ProbeUnit yes_no = ProbeUnit::yes_no;
  constexpr ProbeUnit count = ProbeUnit::count;
  constexpr ProbeUnit ms = ProbeUnit::milliseconds;
  constexpr const char* waits = "waits: 100 ms";
  constexpr const char* at_once = "at once: under 10 ms";
  static const std::vector<Question> all = {
      {"shield", "shield.control", "without a green context, a reset ends the primary context",
       yes_no, "yes"},
      {"shield", "shield.reset_refused",
       "with a green context, a reset is refused (CUDA_ERROR_NOT_PERMITTED)", yes_no, "yes"},
      {"shield", "shield.primary_survives",
       "the primary context and its memory survive a refused reset", yes_no, "yes"},

      {"fault", "fault.primary", "a trap in a private context ends the primary context", yes_no,
       "yes"},
      {"fault", "fault.private", "a trap in a private context ends another private context", yes_no,
       "yes"},
      {"fault", "fault.other_device", "a trap ends the contexts of another GPU", yes_no, "yes"},
      {"fault", "fault.recovery", "after a trap, a new context can be made", yes_no, "no"},

      {"memory", "memory.copy", "a private context can copy another one's memory", yes_no, "yes"},
      {"memory", "memory.kernel", "a private context's kernels can use another one's memory",
       yes_no, "yes"},

      {"stream", "stream.shared", "the primary context has a per-thread default stream", yes_no,
       "yes"},
      {"stream", "stream.private", "a private context has a per-thread default stream", yes_no,
       "yes"},
      {"stream", "stream.green", "a green context has a per-thread default stream", yes_no, "no"},

      {"partition", "partition.multiprocessors", "multiprocessors of the device", count, "132"},
      {"partition", "partition.smallest", "multiprocessors of the smallest partition", count, "8"},
      {"partition", "partition.alignment", "partition sizes are multiples of", count, "8"},
      {"partition", "partition.groups", "partitions of the smallest size", count, "15"},

      {"waits_shared", "waits.shared.synchronize", "shared: cuCtxSynchronize", ms, waits},
      {"waits_shared", "waits.shared.free", "shared: cuMemFree", ms, waits},
      {"waits_shared", "waits.shared.device_synchronize", "shared: cudaDeviceSynchronize", ms,
       waits},
      {"waits_shared", "waits.shared.cuda_free", "shared: cudaFree", ms, waits},
      {"waits_private", "waits.private.synchronize", "private: cuCtxSynchronize", ms, at_once},
      {"waits_private", "waits.private.free", "private: cuMemFree", ms, at_once},
      {"waits_private", "waits.private.device_synchronize", "private: cudaDeviceSynchronize", ms,
       at_once},
      {"waits_private", "waits.private.cuda_free", "private: cudaFree", ms, at_once},
      {"waits_green", "waits.green.synchronize", "green: cuCtxSynchronize", ms, at_once},
      {"waits_green", "waits.green.free", "green: cuMemFree", ms, waits},
      {"waits_green", "waits.green.device_synchronize", "green: cudaDeviceSynchronize", ms, waits},
      {"waits_green", "waits.green.cuda_free", "green: cudaFree", ms, waits},
  };
  return all;
}

std::vector<ProbeAnswer> open_answers() {
  std::vector<ProbeAnswer> answers;
  for (const Question& question : questions()) {
    ProbeAnswer answer;
    answer.name = question.name;
    answer.title = question.title;
    answer.unit = question.unit;
    answer.reference = question.reference;
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace detail
}  // namespace ctxbroker
